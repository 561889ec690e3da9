"""Rules are documents, one page each: what users read, what the tests run, and what the linter does.

A page begins with TOML between `+++` lines (check, severity, since, summary, help, params), then has fixed headings.
Every fenced block under *Example* must fire at its marked lines, every one under *Use instead* and *Near misses* must
be silent. A block's info string is a language and, where it matters, a file name.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from prefixlint import rulefiles
from prefixlint.errors import ConfigError, UsageError
from prefixlint.findings import Example, Rule, Severity
from prefixlint.wordset import word_set

HEADINGS = ("What it does", "Why is this bad?", "Example", "Use instead", "Fix safety", "Near misses", "References")
_REQUIRED = ("What it does", "Why is this bad?", "Example", "Use instead", "Near misses")
_FILE = re.compile(r"(?P<code>[A-Z]{3,5}\d{3})-(?P<name>[a-z0-9-]+)\.md\Z")
_FENCE = re.compile(
    r"^```(?P<language>[a-z0-9]+)(?:[ \t]+(?P<name>\S+))?[ \t]*\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"<- (?P<code>[A-Z]{3,5}\d{3})")
_KEYS = word_set("check severity since summary help params")


@cache
def rules() -> Mapping[str, Rule]:
    """Give the built-in rules by code, in order."""
    return load(rulefiles.folder())


def named(code: str, name: str, severity: Severity) -> Rule:
    """Give the rule that a saved result names: this version's, or one by its name where it has none of the code."""
    known = rules().get(code)
    return known or Rule(code=code, name=name, check="", severity=severity, since="", summary=name)


def load(folder: Path) -> Mapping[str, Rule]:
    """Give the rules of a folder of pages by code; a page that is not one is an error with its place."""
    found = {}
    for path in sorted(folder.glob("*.md")):
        match = _FILE.match(path.name)
        if match is not None:
            found[match["code"]] = page(path.read_text(encoding="utf-8"), match["code"], match["name"], str(path))
    return MappingProxyType(found)


def page(text: str, code: str, name: str, path: str) -> Rule:
    """Give the rule that a page declares."""
    parts = text.split("+++\n", 2)
    if len(parts) != 3 or parts[0].strip():
        raise ConfigError(f"{path}: does not begin with TOML between +++ lines", slug="rule-page")
    try:
        front = tomllib.loads(parts[1])
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}", slug="rule-page") from None
    unknown = sorted(set(front) - _KEYS)
    if unknown:
        raise ConfigError(
            f"{path}: unknown key {unknown[0]!r}", slug="rule-page", hint=f"known: {', '.join(sorted(_KEYS))}"
        )
    sections = _sections(parts[2], path)
    try:
        severity = Severity[str(front["severity"]).upper()]
        return Rule(
            code=code,
            name=name,
            check=front["check"],
            severity=severity,
            since=front["since"],
            params=MappingProxyType(front.get("params", {})),
            summary=front["summary"],
            help=front["help"],
            page=parts[2].strip() + "\n",
            examples=tuple(_examples(sections)),
        )
    except KeyError as error:
        raise ConfigError(f"{path}: {error.args[0]!r} is missing or not known", slug="rule-page") from None


def _sections(body: str, path: str) -> dict[str, str]:
    pieces = re.split(r"^## (.+)$", body, flags=re.MULTILINE)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    for heading in sections:
        if heading not in HEADINGS:
            raise ConfigError(
                f"{path}: unknown heading {heading!r}", slug="rule-page", hint=f"use {', '.join(HEADINGS)}"
            )
    for heading in _REQUIRED:
        if heading not in sections:
            raise ConfigError(f"{path}: heading {heading!r} is missing", slug="rule-page")
    return sections


def _examples(sections: Mapping[str, str]) -> Iterable[Example]:
    for heading in ("Example", "Use instead", "Near misses"):
        for block in _FENCE.finditer(sections[heading]):
            lines = tuple(number for number, line in enumerate(block["text"].splitlines(), 1) if _MARK.search(line))
            yield Example(heading, block["language"], block["name"] or "", block["text"], lines)


def find(name: str, known: Mapping[str, Rule] | None = None) -> Rule:
    """Give a rule by code or name."""
    known = rules() if known is None else known
    for rule in known.values():
        if name.upper() == rule.code or name.lower() == rule.name:
            return rule
    names = [word for rule in known.values() for word in (rule.code, rule.name)]
    near = difflib.get_close_matches(name, names, 1)
    raise UsageError(
        f"no rule is called {name!r}",
        slug="unknown-rule",
        hint=f"did you mean {near[0]}?" if near else "prefixlint rule lists them",
    )


def matching(selectors: Iterable[str], known: Mapping[str, Rule]) -> set[str]:
    """Give the codes that selectors mean: a code, a prefix of codes, a name, or `ALL`."""
    out: set[str] = set()
    for selector in selectors:
        word = selector.strip()
        if word.upper() == "ALL":
            out.update(known)
            continue
        codes = {code for code, rule in known.items() if code.startswith(word.upper()) or rule.name == word.lower()}
        if not codes:
            find(word, known)
        out |= codes
    return out
