"""Which Python files besides those that are checked may fill their texts, by what their bytes name.

A template is filled by code that names it in a string: `"prompts/greet.j2"`, `"greet"`. What reaches a function's
parameters is decided by code that imports its module. Bytes are searched for both before anything is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from prefixlint.sources import SourceFile, python

LIMIT = 200
"""Files read besides those asked for."""
_SHORTEST = 3
"""Letters of a name that may lead to another file: shorter ones name anything."""

_FROM = re.compile(rb"from[ \t]+([\w.]+)[ \t]+import\b[ \t]*(?:\(([^)]*)\)|([^\n(]*))")
_IMPORT = re.compile(rb"^[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_QUOTED = re.compile(rb"[\"'/\\.]([\w-]{3,80})(?=[\"'.])")
_WORD = re.compile(rb"\w+")


def fillers(
    everything: Iterable[str], asked: Iterable[str], wanted: Sequence[str], read: Callable[[str], bytes | None]
) -> list[str]:
    """Give, of the paths of a project, the Python files to read besides the `wanted` ones, in order, at most `LIMIT`.

    `asked` are the files of the run, `wanted` those of them that can hold prompts. A file that names a template of the
    run is one, and a file outside the run that holds prompts and imports a module of it. `read` gives a file's bytes,
    None where they cannot be read.
    """
    modules = _tails(path for path in wanted if path.endswith(".py"))
    templates = {stem for path in wanted if not path.endswith(".py") and len(stem := _stem(path)) >= _SHORTEST}
    within = set(asked)
    others = sorted(path for path in set(everything).difference(wanted) if path.endswith(".py"))
    out: list[str] = []
    for path in others:
        outside = path not in within
        if not (templates or (modules and outside)):
            continue
        data = read(path)
        if data is None:
            continue
        caller = outside and not modules.isdisjoint(_imports(data, path)) and python.wanted(SourceFile(path, data))
        if caller or (templates and not templates.isdisjoint(_QUOTED.findall(data))):
            out.append(path)
            if len(out) == LIMIT:
                break
    return out


def _stem(path: str) -> bytes:
    return path.rsplit("/", 1)[-1].split(".", 1)[0].encode(errors="surrogateescape")


def _tails(paths: Iterable[str]) -> set[str]:
    """Give the names under which modules may be imported: `a.b.c`, `b.c` and `c`, and `/a.b.c` for relative imports."""
    out: set[str] = set()
    for path in paths:
        parts = path.removesuffix("/__init__.py").removesuffix(".py").split("/")
        out.add("/" + ".".join(parts))
        out.update(".".join(parts[start:]) for start in range(len(parts)))
    return out


def _imports(data: bytes, path: str) -> Iterator[str]:
    """Give the dotted names that a file imports, modules and what is taken from them; relative ones begin with `/`."""
    for plain in _IMPORT.findall(data):
        for name in plain.split(b","):
            yield from name.decode().split()[:1]
    for module, listed, plain in _FROM.findall(data):
        base = _absolute(module.decode(), path)
        yield base
        for name in _WORD.findall(listed or plain):
            yield f"{base.removesuffix('.')}.{name.decode()}" if base != "/" else f"/{name.decode()}"


def _absolute(module: str, path: str) -> str:
    name = module.lstrip(".")
    up = len(module) - len(name)
    if not up:
        return name
    folder = path.split("/")[:-up]
    return "/" + ".".join([*folder, *([name] if name else [])])
