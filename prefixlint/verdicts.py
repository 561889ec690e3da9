"""What is found out about a value, and small questions about values that judging it asks."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from prefixlint import volatility
from prefixlint.prompts import Origin, Span
from prefixlint.values import Attr, Call, Loop, Name, Op, Seq, Value, bare, dotted
from prefixlint.wordset import word_set

SHORT = 32
"""Characters of fixed text up to which a built string counts as a value (`f"{day} {month}"`), not as a text."""


class Verdict(NamedTuple):
    """The origins found; `constant` says that the value is known never to change."""

    origins: tuple[Origin, ...] = ()
    constant: bool = False


UNKNOWN = Verdict()
CONSTANT = Verdict((), True)


def union(verdicts: list[Verdict]) -> Verdict:
    """Give what holds for a value made of several."""
    found: dict[tuple[str, str, Span | None], Origin] = {}
    for verdict in verdicts:
        for origin in verdict.origins:
            found.setdefault((origin.kind, origin.label, origin.span), origin)
    return Verdict(tuple(found.values()), not found and all(verdict.constant for verdict in verdicts))


def callable_only(path: str) -> bool:
    """Tell whether a name from the table changes only when it is called: a function that is not called is no source."""
    return not path.startswith(("os.environ", "sys.", "platform"))


TEXT_METHODS = word_set("strip lstrip rstrip lower upper title split encode decode items keys values splitlines copy")
_WRITERS = word_set(
    "format str string render dumps dump humanize localize escape quote wrap isoformat to convert stringify fmt pretty"
)


def writes_out(path: str) -> bool:
    """Tell from its name whether an unknown function turns its argument into text."""
    return bool(set(path.rsplit(".", 1)[-1].lower().split("_")) & _WRITERS)


def lists_files(path: str) -> bool:
    """Tell whether a function lists a folder: what its argument says of the folder is not said of the files."""
    return path.startswith(("os.", "glob.", "pathlib."))


def imported(func: Value) -> bool:
    """Tell whether a chain of attributes begins at an imported or global name."""
    while isinstance(func, Attr):
        func = func.base
    return isinstance(func, Name)


def refined(verdict: Verdict, step: str, argument: str | None = None) -> Verdict:
    """Follow all origins through an attribute, method or format; constant if none is left."""
    if not verdict.origins:
        return verdict
    kept = tuple(origin for each in verdict.origins if (origin := volatility.refine(each, step, argument)) is not None)
    return Verdict(kept, not kept)


def aged(origin: Origin) -> Origin:
    """Make a clock reading an age."""
    return replace(origin, kind="age") if origin.kind == "clock" else origin


def is_delta(value: Value) -> bool:
    """Tell whether a value is a span of time, or so many of one."""
    held = bare(value)
    if isinstance(held, Op) and held.name in ("*", "/", "//"):
        return any(map(is_delta, held.operands))
    return isinstance(held, Call) and (dotted(held.func) or "").endswith(("timedelta", "relativedelta", "duration"))


def set_like(value: Value) -> bool:
    """Tell whether a value is surely a set."""
    held = bare(value)
    if isinstance(held, Op):
        return held.name in ("|", "&", "^", "-") and any(map(set_like, held.operands))
    if isinstance(held, Seq):
        return held.kind == "set"
    if isinstance(held, Loop):
        return held.kind == "set"
    return isinstance(held, Call) and isinstance(held.func, Name) and held.func.dotted in ("set", "frozenset")


def gives_types(value: Value) -> bool:
    """Tell whether a loop gives the types of things: a set of them is made to ask which there are."""
    held = bare(value)
    made = bare(held.body) if isinstance(held, Loop) else None
    return isinstance(made, Call) and dotted(made.func) == "type"


def is_builtin(func: Value) -> bool:
    """Tell whether a function is a builtin."""
    return isinstance(func, Name) and "." not in func.dotted


def is_constant_name(name: str) -> bool:
    """Tell whether a name is written as constants are."""
    last = name.rsplit(".", 1)[-1]
    return len(last) > 1 and last.isupper() and last[0].isalpha()


def is_setting(name: str) -> bool:
    """Tell whether an environment variable is a setting of the deployment rather than a fact of machine or user."""
    return name.upper() not in (
        "USER",
        "USERNAME",
        "LOGNAME",
        "HOME",
        "PWD",
        "HOSTNAME",
        "SHELL",
        "PATH",
        "TERM",
        "LANG",
        "TZ",
        "COMPUTERNAME",
    )


_SETTINGS = word_set("config settings cfg conf constants self cls args options opts")


_PRESENT = frozenset(["current", "now"])
"""Words of a time that is no constant however it is written: `{{ CURRENT_TIME }}`."""


def named(name: str, label: str | None = None) -> Verdict:
    """Give what a name says."""
    source = volatility.of_name(name)
    if source is None:
        return CONSTANT if is_constant_name(name) else UNKNOWN
    present = source.kind == "clock" and not _PRESENT.isdisjoint(name.lower().split("_"))
    if source.kind == "static" or (is_constant_name(name) and not present):
        return CONSTANT
    return Verdict((Origin(source.kind, source.volatility, label or name, None, "name", weak=source.weak),))


def path_named(path: str, label: str | None = None) -> Verdict:
    """Give what a dotted path says: owner and attribute together (`session.url`), else the attribute alone."""
    parts = path.split(".")
    alone = named(parts[-1], label or path)
    if len(parts) < 2 or parts[-2] in _SETTINGS:
        return alone
    if volatility.is_thing(parts[-2]) and any(origin.kind == "identity" for origin in alone.origins):
        return without(alone, "identity")
    said = named(f"{parts[-2]} {parts[-1]}", label or path)
    return said if said.origins or said.constant else alone


def entry_named(holder: str, key: str) -> Verdict:
    """Give what the name of an entry says, else that of what holds it: `found_documents["x"]` was found."""
    said = path_named(f"{holder}.{key}".lstrip("."))
    if said.origins or said.constant:
        return said
    return Verdict(tuple(each for each in named(holder).origins if each.kind in ("retrieval", "memory")))


def without(verdict: Verdict, *kinds: str) -> Verdict:
    """Take out the origins of some kinds."""
    return Verdict(tuple(origin for origin in verdict.origins if origin.kind not in kinds), verdict.constant)


def weakened(verdict: Verdict, *kinds: str) -> Verdict:
    """Take the origins of some kinds, all where none is named, as hints only."""
    origins = (replace(o, weak=True) if not kinds or o.kind in kinds else o for o in verdict.origins)
    return Verdict(tuple(origins), verdict.constant)


def stored(verdict: Verdict) -> Verdict:
    """Take times and ids that belong to stored things: the date of a document is not today's."""
    return without(verdict, "clock", "date", "random", "counter")


def listed(verdict: Verdict) -> Verdict:
    """Take what only a name says of the elements of a list that is written out: where they are, nobody is."""
    core = ("clock", "date", "age", "random", "counter", "identity", "environment")
    return Verdict(tuple(o for o in verdict.origins if o.evidence == "flow" or o.kind not in core), verdict.constant)
