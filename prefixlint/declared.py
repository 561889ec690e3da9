"""What a project says of itself: functions whose arguments are prompts, names that hold them, files that are them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathspec

_ENTRY = re.compile(r"(?P<function>[^\W\d]\w*(?:\.[^\W\d]\w*)*)(?::(?P<argument>[^\W\d]\w*|\d{1,2}))?")


@dataclass(frozen=True, slots=True)
class DeclaredSink:
    """A function whose arguments are prompts: a dotted name, or its end (`llm.chat`, `Bot.say`, `ask`).

    `argument` is the one that is: its name, or its position from 0; empty for all.
    """

    function: str
    argument: str = ""

    @property
    def last(self) -> str:
        """The function's own name."""
        return self.function.rsplit(".", 1)[-1]

    def calls(self, name: str) -> bool:
        """Tell whether a call of a dotted name is one of this function."""
        return name == self.function or name.endswith(f".{self.function}")


@dataclass(frozen=True, slots=True)
class Declared:
    """The `sinks`, `prompt-names` (patterns of `fnmatch`) and `prompt-files` (of `.gitignore`) of a configuration."""

    sinks: tuple[DeclaredSink, ...] = ()
    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def words(self) -> tuple[bytes, ...]:
        """Give words one of which stands in each Python file that the declarations are about."""
        return _words(self)

    def is_prompt_name(self, name: str) -> bool:
        """Tell whether a name was declared to hold a prompt."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)

    def is_prompt_file(self, path: str) -> bool:
        """Tell whether a file was declared to be a prompt."""
        return bool(self.files) and _spec(self.files).match_file(path)

    def arguments(self, name: str) -> list[str]:
        """Give the arguments of a call of a dotted name that are prompts, an empty one for all of them."""
        last = name.rsplit(".", 1)[-1]
        return [sink.argument for sink in self.sinks if sink.last == last and sink.calls(name)]


NOTHING = Declared()


@cache
def _words(declared: Declared) -> tuple[bytes, ...]:
    fixed = (max(re.split(r"[*?\[\]!]+", pattern), key=len) for pattern in declared.names)
    return tuple(word.encode() for word in dict.fromkeys((*(sink.last for sink in declared.sinks), *fixed)))


@cache
def _spec(patterns: tuple[str, ...]) -> pathspec.GitIgnoreSpec:
    import pathspec

    return pathspec.GitIgnoreSpec.from_lines(patterns)


def sinks(entries: Iterable[str]) -> tuple[DeclaredSink, ...]:
    """Read `package.module.function`, `Class.method` or `function:argument`; ValueError says which entry is none."""
    out: list[DeclaredSink] = []
    for entry in entries:
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise ValueError(entry)
        out.append(DeclaredSink(match["function"], match["argument"] or ""))
    return tuple(out)
