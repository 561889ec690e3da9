"""`prefixlint diff`: where two requests part, what differs behind that, and how much they share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from prefixlint import console
from prefixlint.errors import NoInputError, PrefixlintError, UsageError
from prefixlint.model import Messages, Request, Text


@dataclass(frozen=True, slots=True)
class Changed:
    """One difference: its rule (None where no rule speaks of it), the place in the later body, both values."""

    rule: str | None
    what: str
    path: str
    char: int
    before: str
    after: str


@click.command(short_help="First divergence of two requests, and what differs behind it.")
@click.argument("earlier", metavar="A")
@click.argument("later", metavar="B")
@click.option("--redact", is_flag=True, help="Mask times, ids, addresses and other personal values in what is shown.")
@console.output_options(("text", "json"))
@console.guarded
def diff(earlier: str, later: str, **options: Any) -> None:
    """Compare request A with request B as a prefix cache does: tools before system before messages, markers left out.

    A and B are files that hold one request body (or a plain prompt), or LOG#LINE.
    """
    from prefixlint import logrules

    one, two = load(earlier), load(later)
    mask = logrules.mask(personal=options["redact"])
    shared, total = shared_characters(one, two)
    found = changes(one, two, mask)
    if options["report"] == "json":
        shown = _json(found, shared, total)
    else:
        shown = _text(found, shared, total, names=(earlier, later))
    console.emit(shown, options["output"])


def load(name: str) -> Request:
    """Read a request: a file's only (or first) one, `LOG#LINE`, or a file that is a plain prompt."""
    from prefixlint import logs

    path, mark, number = name.rpartition("#")
    if mark and number.isdigit() and not Path(name).exists():
        _exists(path)
        found = next(iter(logs.fetch([path], [(path, int(number), 0)])), None)
        if found is None:
            raise UsageError(f"{path} has no request at line {number}", slug="no-such-line")
        return found
    _exists(name)
    try:
        requests = [item for item in logs.read([name]) if isinstance(item, Request)]
    except PrefixlintError:
        requests = []
    if requests:
        return requests[0]
    return Request(name, 1, Text(Path(name).read_text(encoding="utf-8", errors="replace")), "text")


def _exists(path: str) -> None:
    if not Path(path).is_file():
        raise NoInputError(f"{path}: no such file", slug="no-input", hint="a file, or LOG#LINE")


def body_of(request: Request) -> Any:
    """Give the body whose text is compared: the logged one, or one made of the prompt."""
    if isinstance(request.body, dict):
        return request.body
    content = request.content
    if isinstance(content, Messages):
        return {"tools": list(content.tools), "messages": list(content.messages)}
    if isinstance(content, Text):
        return {"prompt": content.text}
    raise UsageError(
        f"{request.path}, line {request.line}: holds no text to compare", slug="no-text", hint="log prompts as text"
    )


def shared_characters(earlier: Request, later: Request) -> tuple[int, int]:
    """Count the equal leading characters of two prompts, strings one after the other, and those of the longer one."""
    from prefixlint.bodies import common_prefix, leaves

    a, b = (list(leaves(body_of(request))) for request in (earlier, later))
    shared = 0
    for x, y in zip(a, b, strict=False):
        if x.path != y.path:
            break
        if x.value != y.value:
            shared += common_prefix(str(x.value), str(y.value))
            break
        shared += len(str(x.value))
    return shared, max(sum(len(str(leaf.value)) for leaf in leaves_) for leaves_ in (a, b))


def changes(earlier: Request, later: Request, mask: Any) -> list[Changed]:
    """Give the differences in the order of the prompt, the first divergence first."""
    from prefixlint import logrules
    from prefixlint.bodies import first_difference

    first = first_difference(body_of(earlier), body_of(later))
    if first is None:
        return []
    found = [
        Changed(hit.code, hit.what, hit.at.path, hit.at.char, _short(mask(hit.before)), _short(mask(hit.after)))
        for hit in logrules.compare(earlier, later)
    ]
    if found and (found[0].path, found[0].char) == (first.path, first.char):
        return found
    what = "the later request only goes on" if first.grows else "the requests part"
    before, after = (_short(mask(_from(value, first.char))) for value in (first.before, first.after))
    return [Changed(None, what, first.path, first.char, before, after), *found]


def _from(value: Any, char: int) -> str:
    return "" if value is None else str(value)[max(0, char - 20) :]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"


def _json(found: Sequence[Changed], shared: int, total: int) -> str:
    rows = [
        {"rule": c.rule, "message": c.what, "path": c.path, "char": c.char, "values": [c.before, c.after]}
        for c in found
    ]
    result = {
        "schema": "prefixlint.diff/1",
        "equal": not found,
        "first": rows[0] if rows else None,
        "differences": rows,
        "shared": {"characters": shared, "of": total},
    }
    return json.dumps(result, indent=2, ensure_ascii=False) + "\n"


def _text(found: Sequence[Changed], shared: int, total: int, *, names: tuple[str, str]) -> str:
    share = f"{shared:,} of {total:,} characters shared as a prefix ({shared / total:.1%})" if total else "no text"
    if not found:
        return f"{names[0]} and {names[1]} are equal to a prefix cache: {share}\n"
    lines = []
    for number, each in enumerate(found):
        head = "first divergence" if not number else "behind it"
        rule = f"{each.rule}: " if each.rule else ""
        lines.append(f"{head}: {each.path}, character {each.char}: {rule}{each.what}")
        lines += [f"  A  {each.before or '(nothing)'}", f"  B  {each.after or '(nothing)'}"]
    return "\n".join([*lines, share]) + "\n"
