"""One HTML file that opens without a network: the result as JSON, and the script that draws it.

The page carries a policy that forbids every request and every script but its own. What comes out of logs is data: it
stands in the file as JSON without a `<`, and the script puts it into text nodes only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from prefixlint import __version__
from prefixlint.errors import UsageError
from prefixlint.reports import Look
from prefixlint.reports._fit import fit
from prefixlint.reports._terminal import visible
from prefixlint.reports.json import OBEYED, as_json, dump
from prefixlint.results import Analysis

LIMIT = 4_500_000
"""Bytes of data in a page; with the script it stays below 5 MB."""

_KINDS = {"prefixlint.analyze/1": "analyze", "prefixlint.check/1": "check", "prefixlint.verify/1": "verify"}
_SCRIPTS = ("base.js", "charts.js", "tree.js", "check.js", "verify.js", "analyze.js", "main.js")
# What would end a script element, or a line of a script in older engines, is written as a code in JSON.
# And so is what a terminal or an editor that shows the file would obey.
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"} | {code: f"\\u{code:04x}" for code in OBEYED}


def analysis(result: Analysis, look: Look) -> str:  # noqa: ARG001 - a page looks the same everywhere
    """Render what `analyze` found."""
    return document(as_json(result))


def document(saved: Mapping[str, Any]) -> str:
    """Render a result as it was written by `--format json`, of analyze, check or verify; UsageError for another one."""
    import jinja2
    from markupsafe import Markup

    kind = _KINDS.get(str(saved.get("schema")))
    if kind is None:
        known = ", ".join(sorted(_KINDS))
        raise UsageError("this is no result that a page can show", slug="bad-result", hint=f"known schemas: {known}")
    style = _file("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_file, _SCRIPTS)) + "})();\n"
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_file("page.html.j2"))
    page: str = template.render(
        title=f"prefixlint {kind}: {visible(_name(saved))}"[:200],
        version=__version__,
        style=Markup(style),  # noqa: S704 - a file of this package
        style_hash=_source(style),
        script=Markup(script),  # noqa: S704 - files of this package
        script_hash=_source(script),
        data=Markup(_data(saved, kind)),  # noqa: S704 - JSON without a character that HTML reads
    )
    return page


def _file(name: str) -> str:
    return resources.files("prefixlint.reports").joinpath("_page", name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """Name an inline script or style by its hash, as a content security policy wants it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _name(saved: Mapping[str, Any]) -> str:
    """Say what the result is of: its log, or its engine."""
    for part, key in (("input", "files"), ("engine", "name")):
        holder = saved.get(part)
        found = holder.get(key) if isinstance(holder, Mapping) else None
        if isinstance(found, str):
            return found
        if isinstance(found, list) and found:
            return str(found[0]).rpartition("/")[2] + (f" and {len(found) - 1} more" if len(found) > 1 else "")
    return "result"


def _data(saved: Mapping[str, Any], kind: str) -> str:
    result, cuts = fit(saved, LIMIT)
    about = {"kind": kind, "version": __version__, "cut": cuts.rows(), "cut_texts": cuts.texts, "rules": _rules(saved)}
    head = dump(about).rstrip().removesuffix("}").rstrip()
    return f'{head},\n  "result": {result.decode()}\n}}'.translate(_ESCAPES)


def _rules(saved: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Give what the pages of the rules that are named say: what each is, and what to do instead."""
    from prefixlint import rulebook

    named: set[str] = set()
    for part in ("findings", "suppressed", "source_findings"):
        rows = saved.get(part)
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping) and isinstance(row.get("rule"), str):
                named.add(row["rule"])
    rules = rulebook.rules()
    return {code: {"summary": rules[code].summary, "help": rules[code].help} for code in sorted(named & set(rules))}
