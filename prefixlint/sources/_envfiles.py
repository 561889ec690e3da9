"""Files of variables (`.env`, `vllm.env`), which Compose, systemd and scripts hand to a server that they start.

A variable that only one program reads names that program, and so does a flag that only one has, in a variable's value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from prefixlint import servers
from prefixlint.servers import Program, Start
from prefixlint.shellwords import Command, Mapped, Word, commands
from prefixlint.sources import _starts

_NAME = re.compile(r"(?:^|[\w-])\.env(?:\.[\w.-]+)?\Z|^\.env", re.IGNORECASE)


def claims(name: str) -> bool:
    """Tell whether a file's name is that of a file of variables."""
    return _NAME.search(name) is not None


def wanted(data: bytes) -> bool:
    """Tell whether a file sets a variable that a known program reads."""
    return any(name.encode() in data for name in servers.variables())


def starts(source: Mapped) -> Iterator[Start]:
    """Give, for each program that variables or flags name, a start with the variables; it may get more elsewhere."""
    env: dict[str, Word] = {}
    for command in commands(Mapped(source.text + "\n:", (*source.at, source.end, source.end), source.end), {}):
        env.update(command.env)
    named = {servers.variables()[name] for name in env if name in servers.variables()}
    for program in (each for each in servers.programs() if each.name in named):
        yield _partial(_starts.start(program, (), (), env), env)
    for word in env.values():
        yield from _flags(word)


def _flags(word: Word) -> Iterator[Start]:
    if "--" not in word.text:
        return
    for command in commands(Mapped(f": {word.text}", (word.start, word.start, *word.at), word.end), {}):
        program = owner(command)
        if program is not None:
            found = _starts.start(program, command.words[1:2], command.words[1:], {})
            yield Start(found.program, found.start, found.end, found.settings, complete=False)


def owner(command: Command) -> Program | None:
    """Give the program that alone has one of a command's flags."""
    names = {servers.flags().get(servers.flag_name(word.text.partition("=")[0])) for word in command.words[1:]}
    return next((program for program in servers.programs() if program.name in names), None)


def _partial(found: Start, env: dict[str, Word]) -> Start:
    first = min(word.start for word in env.values())
    return Start(found.program, first, first + 1, found.settings, complete=False)
