"""Facts about how engines and routers are started: their commands, and the settings that cost cache hits.

The facts are `rules/servers.toml`, with dates and sources; this module reads them and compares a start with them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from prefixlint import rulefiles

_FALSE = frozenset({"false", "0", "no", "off", "none", "disabled"})
_OPEN = re.compile(r"\$|\{\{")


@dataclass(frozen=True, slots=True)
class Setting:
    """A flag or variable of a start: how it is written, its value (empty for a switch), and its bytes."""

    name: str
    written: str
    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Start:
    """A program that is started. `settings` are flags, variables, and what surrounds it (`@replicas`).

    `complete` is false where more flags may come from outside.
    """

    program: str
    start: int
    end: int
    settings: tuple[Setting, ...]
    complete: bool = True

    def given(self, name: str) -> Setting | None:
        """Give the last setting of a name; `*` at the end matches any ending."""
        for setting in reversed(self.settings):
            if setting.name == name or (name.endswith("*") and setting.name.startswith(name[:-1])):
                return setting
        return None


@dataclass(frozen=True, slots=True)
class Program:
    """A program as the facts know it; `commands` are its words."""

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    images: tuple[str, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A setting that a fault speaks of, and what to say about it."""

    start: int
    end: int
    message: str


@cache
def _facts() -> Mapping[str, Any]:
    return tomllib.loads((rulefiles.folder() / "servers.toml").read_text(encoding="utf-8"))


@cache
def programs() -> tuple[Program, ...]:
    """Give the known programs."""
    return tuple(
        Program(
            row["name"],
            row["title"],
            tuple(tuple(command.split()) for command in row["commands"]),
            tuple(row["images"]),
            tuple(row.get("keys", ())),
        )
        for row in _facts()["program"]
    )


@cache
def words() -> re.Pattern[bytes]:
    """Give what a file must hold to start any of the programs."""
    found = {command[0] for program in programs() for command in program.commands}
    found |= {text for program in programs() for text in (*program.images, *program.keys)}
    return re.compile(
        rb"(?<![\w-])(?:" + b"|".join(re.escape(word.encode()) for word in sorted(found)) + rb")(?!-\d|\w)"
    )


def by_command(words_: Sequence[str]) -> tuple[Program, int] | None:
    """Give the program that words start with, and how many of them name it."""
    for program in programs():
        for command in program.commands:
            name = words_[0].rsplit("/", 1)[-1]
            if (name, *words_[1 : len(command)]) == command:
                return program, len(command)
    return None


def by_image(image: str) -> Program | None:
    """Give the program that a container image runs."""
    for program in programs():
        if any(f"/{image}".find(f"/{text}") >= 0 or text in image for text in program.images):
            return program
    return None


def by_key(key: str) -> Program | None:
    """Give the program whose settings a key of Helm values holds."""
    return next((program for program in programs() if key in program.keys), None)


@cache
def flags() -> Mapping[str, str]:
    """Give the flags that only one program has in the facts, with its name."""
    found: dict[str, set[str]] = {}
    for fault in _facts()["fault"]:
        names = [*fault.get("given", ()), *fault.get("off", ()), *fault.get("missing", ()), *fault.get("values", ())]
        for name in names:
            if name.islower() and "-" in name:
                found.setdefault(name, set()).update(fault["programs"])
    return {name: next(iter(owners)) for name, owners in found.items() if len(owners) == 1}


_OWN = re.compile(r"(?:VLLM|SGLANG|TGI|LLAMA|GGML)_")


@cache
def variables() -> Mapping[str, str]:
    """Give the variables that bear a program's name and that only one program reads in the facts, with that program."""
    found: dict[str, set[str]] = {}
    for fault in _facts()["fault"]:
        for name in filter(_OWN.match, fault.get("env", ())):
            found.setdefault(name, set()).update(fault["programs"])
    return {name: next(iter(owners)) for name, owners in found.items() if len(owners) == 1}


def flag_name(word: str) -> str:
    """Give a flag as the facts write it: no dashes in front of a long one, hyphens inside, camel case taken apart."""
    if not word.startswith("--"):
        return word.replace("_", "-") if word.startswith("-") else _kebab(word)
    return word[2:].replace("_", "-")


def _kebab(word: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word).replace("_", "-").lower()


def faults(start: Start, topic: str) -> Iterator[Hit]:
    """Give what the facts say about a start, for one topic."""
    for fault in _facts()["fault"]:
        if fault["topic"] != topic or start.program not in fault["programs"]:
            continue
        if any(start.given(name) is not None for name in fault.get("without", ())):
            continue
        if "with" in fault and not any(start.given(name) is not None for name in fault["with"]):
            continue
        yield from _missing(start, fault) if "missing" in fault else _matching(start, fault)


def _missing(start: Start, fault: Mapping[str, Any]) -> Iterator[Hit]:
    absent = [name for name in fault["missing"] if start.given(name) is None or _is_off(start.given(name))]
    if absent and start.complete and not _off_by_value(start):
        names = " and ".join(f"`--{name}`" for name in absent)
        yield Hit(start.start, start.end, fault["message"].format(missing=names))


def _off_by_value(start: Start) -> bool:
    """Tell whether the cache that would be reported is off."""
    caching = start.given("enable-prefix-caching")
    return caching is not None and _is_off(caching)


def _is_off(setting: Setting | None) -> bool:
    return setting is not None and setting.value.strip().lower() in _FALSE


def _matching(start: Start, fault: Mapping[str, Any]) -> Iterator[Hit]:
    seen: set[tuple[int, int]] = set()
    for setting in start.settings:
        if start.given(setting.name) is not setting or not _holds(setting, fault):
            continue
        workers = _workers(start)
        if workers is not None and workers < fault.get("workers", 0):
            continue
        if (setting.start, setting.end) in seen:
            continue
        seen.add((setting.start, setting.end))
        text = fault["message"].format(
            flag=setting.written,
            value=setting.value,
            why=_facts()["why"].get(setting.name, ""),
            workers="several" if workers is None else workers,
        )
        yield Hit(setting.start, setting.end, text)


def _holds(setting: Setting, fault: Mapping[str, Any]) -> bool:
    name, value = setting.name, setting.value.strip()
    if name in fault.get("given", ()):
        return not _is_off(setting)
    if name in fault.get("off", ()):
        return _is_off(setting)
    if name in fault.get("values", {}):
        return value.lower() in fault["values"][name]
    if name in fault.get("env", {}):
        return value.lower() in fault["env"][name]
    if name in fault.get("pattern", {}):
        return re.search(fault["pattern"][name], value) is not None
    if name in fault.get("above", {}):
        return value.isdigit() and int(value[:9]) > fault["above"][name]
    return False


def _workers(start: Start) -> int | None:
    """Count the replicas that a router is given, None where it finds them itself."""
    numbers = [start.given(name) for name in ("dp-size", "intra-node-data-parallel-size")]
    counts = [int(found.value[:9]) for found in numbers if found is not None and found.value.isdigit()]
    for name, gap in (("worker-urls", r"[\s,]+"), ("static-backends", r"[\s,]+"), ("prefill", r"[\s,]+")):
        found = start.given(name)
        if found is not None and not _OPEN.search(found.value):
            counts.append(len([url for url in re.split(gap, found.value.strip(" []")) if url]))
    return max(counts) if counts else None
