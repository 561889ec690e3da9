"""Values of given kinds in the part of a prompt that other requests should share.

Parameters: `kinds` (words of sources.toml), `where` (`prompt`, the default, or `tools`), `roles` (only these; default
all), `only` (roles for single kinds), `advice` (information whatever the rule's ceiling: an order worth knowing, not
a fault).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from prefixlint import volatility
from prefixlint.checks import Context
from prefixlint.checks._words import amount, at_risk, cadence, is_once
from prefixlint.fills import BRACE_METHODS, DOLLAR_METHODS
from prefixlint.findings import USED, Confidence, Edit, Finding, Fix, Related, Rule, Severity
from prefixlint.placement import CONTENT, HEAD, Place, size
from prefixlint.prompts import PICTURE, Hole, Include, Period, Scope, Segment, Span, Text, flatten
from prefixlint.reach import is_aside
from prefixlint.sources._pyscope import words
from prefixlint.sources._pysinks import PROMPT_WORDS
from prefixlint.speech import IMPERATIVE, static_text
from prefixlint.wordset import word_set

NAME = "volatile"

_ACCIDENTS = frozenset({"order", "object", "json", "selection"})
"""Kinds that nobody wants to change: wherever they stand, they are mistakes."""

UNKNOWN_FLOOR = 80
"""Static tokens that must follow a place of which nothing is known: then it is worth a remark whatever fills it."""
CONTENT_FLOOR = 8
"""Static tokens that must follow request data: fewer are its frame (a closing tag, a colon), not shared text."""
NEWEST_FLOOR = 16
"""Static tokens that must follow a value inside the newest message: fewer are a phrase around it, not instructions."""
SHARED_FLOOR = 24
"""Static tokens behind a place that make it a fault where no conversation is shown to follow."""
BLOCK_FLOOR = 32
"""The same where a value of the request's own follows, behind which all is new anyway: two blocks of vLLM."""
_OWNERS = frozenset(["tenant", "org", "organization", "workspace", "business"])
"""Whose prompt it is: all who ask one of them share its text."""
TEXT_FLOOR = 128
"""The same where code does not show that the text is system text, and for numbers that count."""
_PART = 4
"""Times the text behind a place that stands ahead of it, from which on a small part of a request is lost."""
LARGE = 256
"""Static tokens behind a place that are worth telling of however much stands ahead: sixteen blocks of vLLM."""
_CODE = (".py", ".pyw", ".ipynb")
"""Endings of files in which a text may be anything; a template is there to be sent."""
_NEVER_ASKED = frozenset(["clock", "date", "age", "random"])
"""Kinds that no request is about."""
_EXAMPLES = word_set(
    "example examples sample samples shot shots fewshot demo demos demonstration demonstrations exemplar exemplars"
)
"""What is drawn to show a model how to answer, any of which would do."""
_OF_A_PROCESS = frozenset(["order", "object"])
"""Kinds that each process has another one of, whenever it makes it."""
_OF_A_SESSION = frozenset(["order", "selection", "random"])
"""Kinds that a conversation often has one of: its id, the persona that was drawn for it."""
_LISTINGS = frozenset(["listdir", "scandir", "walk", "glob", "iglob", "rglob", "iterdir", "entry_points"])
"""Functions that give the files of a folder, or what is installed."""
_PRESENT = frozenset(["current", "now", "today"])
"""Words that say that a time is the present one, not that of an event or a document."""
_SAYS_NOW = re.compile(r"\b(?:current|currently|now|today|present)\b[^.]*\Z", re.IGNORECASE)

_TELLS_TIME = re.compile(
    r"\b(?:current|present|local)\s+(?:\w+\s+)?(?:date|time|datetime)\b[^.,;]{0,24}\Z|\b(?:time|it) is (?:now )?\Z"
    r"|(?:当前|现在)的?(?:系统)?(?:日期|时间)[^。，]{0,12}\Z",
    re.IGNORECASE,
)
"""Words right before a value that say that it is the present time, whatever the value is called."""


def check(context: Context, rule: Rule) -> Iterator[Finding]:
    """Report each place whose origin is of the rule's kinds."""
    kinds = frozenset(rule.params["kinds"])
    where = rule.params.get("where", "prompt")
    roles = frozenset(rule.params.get("roles", ()))
    only = rule.params.get("only", {})
    found: list[tuple[Place, Finding]] = []
    for place in map(_shown, context.places):
        if place.origin.kind not in kinds or (place.role == "tools") != (where == "tools"):
            continue
        if where == "tools" and place.origin.kind in CONTENT and place.origin.evidence == "name":
            continue
        if (roles and place.role not in roles) or place.role not in only.get(place.origin.kind, (place.role,)):
            continue
        if matters(place, context.min_tokens, content=bool(rule.params.get("advice"))):
            found.append((place, report(place, rule, context.min_tokens)))
    yield from _one_of_each(found)


def _shown(place: Place) -> Place:
    """Give a proven fault without a place ahead that hides it only by what its name says.

    Whether or not that one changes as well, this one is a fault, and neither would be told of.
    """
    ahead = place.masker
    if ahead is None or ahead.origin.evidence != "name" or ahead.origin.kind in (*CONTENT, "unknown"):
        return place
    return replace(place, masker=None) if is_proven(place) and not is_proven(ahead) else place


def _one_of_each(found: list[tuple[Place, Finding]]) -> Iterator[Finding]:
    """Keep, of several places that one reading or one argument fills, the most exact as grave: one change mends all.

    A placeholder that an argument fills is exact; a whole text, of which no more is known than what flows into it, is
    not.
    """
    best: dict[Span, tuple[tuple[bool, int], Finding]] = {}
    for place, finding in found:
        read = _read_here(place)
        if read is not None and finding.severity > Severity.INFO:
            rank = (place.span != place.group, place.before + place.behind)
            if read not in best or rank > best[read][0]:
                best[read] = rank, finding
    for place, finding in found:
        read = _read_here(place)
        other = best[read][1] if read in best else finding
        same = read is None or other.group == finding.group
        yield finding if same else replace(finding, severity=Severity.INFO)


def _read_here(place: Place) -> Span | None:
    """Give where the value of a place is read, if that is in the same file, else the argument that brings it."""
    span = place.origin.span
    if place.origin.evidence == "flow" and span is not None and span.path == place.span.path:
        return span
    return place.span if place.span != place.group else None


def matters(place: Place, min_tokens: int, *, content: bool) -> bool:
    """Tell whether enough stands behind a place."""
    if place.role == "tools":
        return True
    if place.origin.kind == "unknown" and place.behind < UNKNOWN_FLOOR:
        return False
    if place.newest or place.role in ("user", "tool", "assistant"):
        return place.behind >= max(min_tokens, NEWEST_FLOOR)
    if rule_of_history(place) if not content else recalled(place):
        return True
    return place.behind >= max(min_tokens, CONTENT_FLOOR if content else 1)


def rule_of_history(place: Place) -> bool:
    """Tell whether a history follows that the value makes the engine read again within one conversation."""
    lasting = place.origin.kind in _ACCIDENTS or place.origin.volatility.period >= Period.MINUTE
    return place.open_ended and lasting


def recalled(place: Place) -> bool:
    """Tell whether results of a search stand at the end of the system text, with the conversation behind them."""
    sure = place.origin.evidence == "flow" or place.origin.kind == "memory" or place.history
    return place.role in ("system", "developer") and place.origin.kind in ("retrieval", "memory") and sure


def level(place: Place, rule: Rule, min_tokens: int) -> Severity:
    """Give the severity: the rule's ceiling, lowered by position, by how seldom the value changes, by what hides it.

    What stands aside from what serves requests is information, and so is a value that such code brings.
    """
    if rule.params.get("advice") or place.masker is not None or place.origin.weak or not is_proven(place):
        return Severity.INFO
    if is_little(place, min_tokens):
        return Severity.INFO
    lasting = place.origin.kind not in _OF_A_PROCESS
    if place.origin.frozen and lasting:  # all requests of a process have the same
        return Severity.INFO
    if is_aside(place.span.path) or (place.origin.span is not None and is_aside(place.origin.span.path)):
        return Severity.INFO
    ceiling = rule.severity
    if lasting and place.origin.volatility.period == Period.DAY:  # once a day, when caches are long gone
        return Severity.INFO
    if place.origin.frozen or (lasting and place.origin.volatility.period == Period.PROCESS):
        ceiling = min(ceiling, Severity.WARNING if rule.severity == Severity.ERROR else Severity.INFO)
    if place.role not in HEAD and place.role != "text":
        ceiling = min(ceiling, Severity.WARNING)
    return ceiling


def is_little(place: Place, min_tokens: int) -> bool:
    """Tell whether too few tokens are lost for a warning, in multiples of the tokens that make a remark.

    A user's name costs each user once what all share, and nothing of a conversation, which is the user's own in any
    case. What only a name tells must share twice as many behind the place.
    """
    if place.origin.kind == "identity":
        return place.shared < min_tokens
    return place.origin.evidence == "name" and place.shared < 2 * min_tokens


def is_proven(place: Place) -> bool:
    """Tell whether the source shows that a model reads the place, that its value changes, and that this costs hits."""
    if place.lone or place.late or not place.prompt.shown:
        return False
    return _is_telling(place) if place.origin.evidence == "name" else _costs(place)


def _is_telling(place: Place) -> bool:
    """Tell whether a name alone says enough: `{current_time}` or a user's id ahead of text, in what begins a prompt.

    An attribute may hold any time, that of an event for one, unless the text says that it is the present one. Any other
    name counts only at the head of a request, and if it has two words: `{user}` stands for whoever speaks,
    `{user_name}` for one of many.
    """
    origin = place.origin
    if place.role not in ("system", "developer") or place.repeated or _is_somewhere(place):
        return False
    if origin.kind == "clock":
        if not _breaks_off(place, CONTENT_FLOOR):
            return False
        if origin.label.rpartition(".")[0].removeprefix("self"):
            return _TELLS_TIME.search(place.lead) is not None
        return bool(words(origin.label) & _PRESENT) or _SAYS_NOW.search(place.lead) is not None
    # a user's name at the end of a long text costs little: most of it is shared, and what follows is the user's own
    head = len(place.prompt.messages) > 1 and place.behind >= place.before and place.shared >= SHARED_FLOOR
    asker = origin.volatility.scope >= Scope.USER and not words(origin.label) & _OWNERS
    known = origin.kind == "identity" and len(words(origin.label)) > 1
    asked = known and head and asker and _is_filled(place)
    first = not (_is_behind_unknown(place) or _is_behind_clock(place))
    return asked and first and _shared_by_all(place) >= SHARED_FLOOR


def _is_behind_unknown(place: Place) -> bool:
    """Tell whether a value of which nothing is known, and which may be what was found for a question, stands ahead."""
    ahead, here, _ = _around(place)
    return any(
        isinstance(segment.node, Hole) and not (segment.node.constant or segment.node.origins) and _meet(here, segment)
        for segment in ahead
    )


def _is_behind_clock(place: Place) -> bool:
    """Tell whether a time of day stands ahead: who asks costs nothing as long as that does."""
    ahead, _, _ = _around(place)
    told = (origin for segment in ahead if isinstance(segment.node, Hole) for origin in segment.node.origins)
    return any(origin.kind == "clock" and origin.volatility.period >= Period.MINUTE for origin in told)


def _around(place: Place) -> tuple[list[Segment], Segment, list[Segment]]:
    """Give the segments ahead of a place, its own and those behind it."""
    segments = flatten(place.prompt)
    at = next(index for index, segment in enumerate(segments) if segment.node is place.hole)
    return segments[:at], segments[at], segments[at + 1 :]


def _meet(one: Segment, two: Segment) -> bool:
    """Tell whether two segments may stand in one prompt: in no choice do they need other branches."""
    own = dict(one.branch)
    return all(own.get(choice, branch) == branch for choice, branch in two.branch)


def _shared_by_all(place: Place) -> float:
    """Give the static tokens behind a place that stand there in any case, up to what else is known of the same user."""
    _, here, behind = _around(place)
    own, said = set(here.branch), place.origin.label
    shared = itertools.takewhile(lambda segment: not _is_of_same(segment.node, said), behind)
    return sum(size(segment) for segment in shared if own.issuperset(segment.branch))


def _is_of_same(node: Text | Hole | Include, said: str) -> bool:
    """Tell whether a place holds something else of what a value is an attribute of."""
    owner = said.strip("{}").rpartition(".")[0]
    if not isinstance(node, Hole) or not owner or any(origin.label == said for origin in node.origins):
        return False
    return any(name.rpartition(".")[0] == owner for name in node.names)


def _is_filled(place: Place) -> bool:
    """Tell whether code that is shown fills a place, not whoever renders a template."""
    return place.hole.span.path.endswith(_CODE) or place.hole.argument is not None


def _costs(place: Place) -> bool:
    """Tell whether text that requests share, or a conversation, stands behind a value that is known to change.

    Facts that stay for as long as a process runs, and the order of a folder that nobody writes to, are the same in all
    requests of a server; what a command prints is told at the start of a session on purpose. Outside system text only
    clocks count, and in a template fresh ids: what else changes there is what the request is about, and behind a system
    text what happened in its course. How many requests an object serves that holds a value is not shown: often all.
    """
    kind, origin = place.origin.kind, place.origin
    if kind == "environment" or _is_listing(place) or _is_somewhere(place):
        return False
    if place.role not in HEAD:
        if place.role == "text" and not place.group.path.endswith(_CODE):
            return kind in _NEVER_ASKED and place.shared >= SHARED_FLOOR
        first = place.prompt.messages[0].role == place.role
        told = kind in _NEVER_ASKED - {"random"} and first and place.shared >= TEXT_FLOOR and _speaks(place)
        return told and not _is_behind_unknown(place)
    if is_once(place) or (origin.frozen and place.shared < SHARED_FLOOR):
        return False
    if place.role == "tools":
        return True
    if not place.history and place.shared < TEXT_FLOOR and _shows_picture(place):
        return False
    if (kind == "selection" and not _is_of_examples(place)) or _is_last(place):
        return False
    if kind == "counter":  # of one of the parts that a document is read in, as often as of a step
        return _breaks_off(place, TEXT_FLOOR)
    return _breaks_off(place, SHARED_FLOOR if kind in _OF_A_SESSION else CONTENT_FLOOR)


def _shows_picture(place: Place) -> bool:
    """Tell whether a request is about a picture, which costs far more than the few lines about it."""
    return any(isinstance(s.node, Include) and s.node.target == PICTURE for s in _around(place)[2])


def _is_last(place: Place) -> bool:
    """Tell whether a value stands towards the end of a system text that the source shows alone.

    Nothing says that it is made anew within a conversation, and most of it is shared; nor does it cost more as the last
    thing of one, in front of a question. What counts how long something has lasted is made anew.
    """
    if place.history or place.behind >= place.before or place.origin.kind == "age":
        return False
    if place.shared < min(place.before / _PART, LARGE) and _is_asked(place):
        return True  # a request without turns, most of which is shared
    if len(place.prompt.messages) == 1 and not place.cut:
        return True
    if _around(place)[1].message > 0:  # what changes has a system message of its own, behind the one that stays
        return True
    return _behind_in_message(place) < CONTENT_FLOOR


def _is_asked(place: Place) -> bool:
    """Tell whether the source shows a request whole, with what it asks: no conversation follows."""
    return bool(place.prompt.messages) and place.prompt.messages[-1].role == "user"


def _behind_in_message(place: Place) -> float:
    """Give the static tokens behind a place in its own message."""
    _, here, behind = _around(place)
    return sum(size(segment) for segment in behind if segment.message == here.message and _meet(here, segment))


def _breaks_off(place: Place, floor: int) -> bool:
    """Tell whether requests share text behind a place, or a conversation follows it, with nothing of their own between.

    A time at the end of a system text that nothing is shown to follow may be where it costs least.
    """
    if place.bounded:
        return place.beyond >= max(floor, BLOCK_FLOOR)
    return place.history or place.beyond >= floor


def _is_of_examples(place: Place) -> bool:
    """Tell whether examples are drawn: anything else that is drawn is often what the prompt is for."""
    return any(words(name) & _EXAMPLES for name in place.hole.names if not name.endswith("()"))


def _is_listing(place: Place) -> bool:
    """Tell whether an order is that of a folder's files."""
    return place.origin.kind == "order" and place.origin.label.rstrip("()").rsplit(".", 1)[-1] in _LISTINGS


def _is_somewhere(place: Place) -> bool:
    """Tell whether a value stands somewhere in a text that is not followed: `{enriched_prompt}`."""
    origin, names = place.origin, place.hole.names
    elsewhere = origin.span != place.group if origin.span is not None else origin.label.strip("{}") not in names
    return elsewhere and bool(names) and bool(words(names[0]) & PROMPT_WORDS)


def _speaks(place: Place) -> bool:
    """Tell whether the text that a place stands in speaks to a model."""
    return any(IMPERATIVE.search(static_text(message.nodes)) for message in place.prompt.messages)


def report(place: Place, rule: Rule, min_tokens: int) -> Finding:
    """Give the finding of a place."""
    origin = place.origin
    what = origin.label or volatility.describe(origin.kind)
    message = f"{volatility.describe(origin.kind)} (`{what}`) {_where(place)}{amount(place)} {cadence(place)}"
    related = []
    if place.span != place.hole.span:
        related.append(Related(place.hole.span, "it fills this place"))
    if origin.span is not None and origin.span not in (place.span, place.hole.span):
        related.append(Related(origin.span, f"`{origin.label}` is read here"))
    for bound in place.hole.bound:
        if bound not in (place.span, place.hole.span) and len(related) < 4:
            related.append(Related(bound, USED))
    if place.masker is not None:
        related.append(
            Related(place.masker.span, "an earlier place changes at least as often; this one shows once it is fixed")
        )
    return Finding(
        rule=rule,
        message=message,
        span=place.span,
        severity=level(place, rule, min_tokens),
        confidence=_confidence(place, rule),
        tokens_at_risk=at_risk(place),
        related=tuple(related),
        help=rule.help,
        group=place.group,
        masker=place.masker.group if place.masker is not None else None,
        fix=_repair(place) if is_proven(place) else None,
    )


_SORTABLE = (
    "a set",
    "a set comprehension",
    "set()",
    "frozenset()",
    "os.listdir()",
    "glob.glob()",
    "pathlib.Path.glob()",
)


def _repair(place: Place) -> Fix | None:
    """Offer `sorted(...)` around an unordered collection, `sort_keys=True` in a dump.

    Whether it parses is proved later.
    """
    origin, span = place.origin, place.hole.span
    if origin.evidence != "flow" or not span.path.endswith(".py"):
        return None
    if origin.kind == "order" and origin.label in _SORTABLE:
        before, after = (
            Edit(Span(span.path, span.start, span.start), "sorted("),
            Edit(Span(span.path, span.end, span.end), ")"),
        )
        return Fix("put sorted(...) around the collection", (before, after))
    if origin.kind == "json" and origin.span is not None and origin.span.path.endswith(".py"):
        at = origin.span.end - 1
        return Fix("write the keys in order", (Edit(Span(origin.span.path, at, at), ", sort_keys=True"),))
    return None


def _confidence(place: Place, rule: Rule) -> Confidence:
    if place.origin.evidence == "flow":
        return Confidence.HIGH
    return Confidence.LOW if rule.params.get("advice") else Confidence.MEDIUM


def _where(place: Place) -> str:
    """Say where a value stands: in a text that is not at hand it is put somewhere, not at the first token."""
    made = (name.removesuffix("()").rpartition(".")[2] for name in place.hole.names if name.endswith("()"))
    if not place.before and not place.behind and any(name in BRACE_METHODS | DOLLAR_METHODS for name in made):
        return f"somewhere in {_whose(place)}"
    position = f"token {place.before}" if place.before else "the first token"
    later = " or later" if any(map(_is_unshown_text, _around(place)[0])) else ""
    return f"at {position}{later} of {_whose(place)}"


def _is_unshown_text(segment: Segment) -> bool:
    """Tell whether a piece of a prompt is text of which nothing is known but what it is called: `{base_prompt}`."""
    node = segment.node
    if not isinstance(node, Hole) or node.constant or node.origins or not node.names:
        return False
    return bool(words(node.names[0]) & PROMPT_WORDS)


def _whose(place: Place) -> str:
    if place.role == "tools":
        return "the tool definitions"
    return "the text" if place.role == "text" else f"the {place.role} message"
