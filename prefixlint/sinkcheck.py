"""Declared sinks that a project's own files contradict: a function or argument that is misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from prefixlint.declared import Declared, DeclaredSink
from prefixlint.project import Project
from prefixlint.sources import Diagnostic


def problems(declared: Declared, project: Project) -> Iterator[Diagnostic]:
    """Give the sinks that name nothing, where the file that they lead to has something of nearly that name.

    A sink may name a library, or the end of a name: what leads to no file of the project is taken as it is.
    """
    for sink in declared.sinks:
        found = project.module(sink.function, "")
        if found is None or not found[1]:
            continue
        message = _problem(sink, project, *found)
        if message is not None:
            yield Diagnostic(found[0], 0, "unknown-sink", f"sinks: {sink.function}: {message}")


def _problem(sink: DeclaredSink, project: Project, path: str, rest: tuple[str, ...]) -> str | None:
    summary = project.summary(path)
    if summary is None:
        return None
    wanted = ".".join(rest)
    definition = project.definition(f".{wanted}", summary)
    if definition is None:
        near = _nearest(wanted, (*summary.functions, *summary.classes))
        return None if near is None else f"no such function in this file; did you mean {near}?"
    function = project.function(definition)
    if function is None or not sink.argument or sink.argument.isdigit() or sink.argument in function.params:
        return None
    near = _nearest(sink.argument, function.params)
    return None if near is None else f"no argument {sink.argument!r}; did you mean {near!r}?"


def _nearest(word: str, words: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word, list(words), 1)), None)
