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

_FROM = re.compile(rb"from[ \t]+([\w.]+)")
_IMPORTED = re.compile(rb"import\b[ \t]*(?:\(([^)]*)\)|([^\n(]*))")
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
    modules = {stem for path in wanted if path.endswith(".py") and len(stem := _module(path)) >= _SHORTEST}
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
        caller = outside and not modules.isdisjoint(_imports(data)) and python.wanted(SourceFile(path, data))
        if caller or (templates and not templates.isdisjoint(_QUOTED.findall(data))):
            out.append(path)
            if len(out) == LIMIT:
                break
    return out


def _stem(path: str) -> bytes:
    return path.rsplit("/", 1)[-1].split(".", 1)[0].encode(errors="surrogateescape")


def _module(path: str) -> bytes:
    """Give the last part of a module's name: a package's is its folder."""
    return _stem(path.removesuffix("/__init__.py"))


def _imports(data: bytes) -> Iterator[bytes]:
    """Give the words of a file's import statements."""
    for module in _FROM.findall(data):
        yield from module.split(b".")
    for listed, plain in _IMPORTED.findall(data):
        yield from _WORD.findall(listed or plain)
