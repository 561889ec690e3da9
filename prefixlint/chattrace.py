"""Which expression of a chat template wrote which character: a template rendered twice, plainly and with marks.

Marks are private-use characters around each piece of output. A template that reads its own output (a macro's text, a
`set` block) could behave differently with them; then only pieces that nothing can read are marked.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import nodes

from prefixlint.errors import TemplateError
from prefixlint.sandbox import Environment

MAX_CHARS = 2**17
"""Characters of a template that is judged; the longest published ones are below 50,000."""
BUDGET = 2**23
"""Units (`jinja_limits`) of one rendering of a few short messages; published templates need below a hundredth of it."""

_OPEN, _NUMBERED, _CLOSE = "\ue000", "\ue001", "\ue002"
_MARK = re.compile(f"{_OPEN}(\\d+){_NUMBERED}|{_CLOSE}")
_MARKS = re.compile(f"[{_OPEN}-{_CLOSE}]")
_WORD = re.compile(r"[<\[][^<>\[\]\s]*\Z")  # a special token that has begun
_CAPTURES = (nodes.Macro, nodes.AssignBlock, nodes.CallBlock, nodes.FilterBlock)
_LOCAL = frozenset({"loop", "caller", "true", "false", "none", "True", "False", "None", "varargs", "kwargs"})


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of template that writes: characters of the source, and the tags of the conditions around it."""

    start: int
    end: int
    literal: bool
    conditions: tuple[tuple[int, int], ...]
    captured: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the source a character of the output was written: characters, half open.

    `since` is the character of the output at which that piece began to write.
    """

    start: int
    end: int
    since: int = 0
    conditions: tuple[tuple[int, int], ...] = ()


class Traced:
    """A chat template that says where its output comes from. Rendering has the sandbox's limits.

    Raises TemplateError if it does not compile.
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_CHARS:
            raise TemplateError("the chat template is longer than 128 Ki characters", slug="template-too-large")
        self.source = source
        self._with_marks: dict[bool, jinja2.Template] = {}
        self._environment = Environment()
        self._environment.begin(None)
        try:
            self._tree = self._environment.parse(source)
            self._template = self._environment.load(self._tree)
        except jinja2.exceptions.TemplateSyntaxError as error:
            raise TemplateError(
                f"the chat template does not compile (line {error.lineno}): {error.message}", slug="template-syntax"
            ) from error
        except Exception as error:  # Jinja and Python report nesting and size in many ways
            raise TemplateError(f"the chat template does not compile: {error}", slug="template-syntax") from error

    def render(self, variables: Mapping[str, Any], time: float | None = None) -> str | None:
        """Give the text for these variables, None where the template refuses them or must be stopped."""
        return self._run(self._template, variables, time)

    def _run(self, template: jinja2.Template, variables: Mapping[str, Any], time: float | None) -> str | None:
        environment = self._environment
        environment.begin(time, BUDGET)
        try:
            return str(environment.concat(template.root_render_func(template.new_context(dict(variables)))))
        except Exception:  # noqa: BLE001 (a template is a foreign program: what it raises is a refusal)
            return None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables that the template may read from outside, sorted; not what loops and macros bind."""
        tree = self._tree
        bound = {name.name for loop in tree.find_all(nodes.For) for name in loop.target.find_all(nodes.Name)}
        bound |= {loop.target.name for loop in tree.find_all(nodes.For) if isinstance(loop.target, nodes.Name)}
        bound |= {macro.name for macro in tree.find_all(nodes.Macro)}
        bound |= {argument.name for macro in tree.find_all(nodes.Macro) for argument in macro.args}
        loaded = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"}
        return tuple(sorted(loaded - bound - _LOCAL - self._environment.globals.keys()))

    def place(self, variables: Mapping[str, Any], time: float | None, offset: int) -> Place | None:
        """Give what wrote the character at `offset` of `render(variables, time)`; None where that cannot be told."""
        plain = self.render(variables, time)
        if plain is None or _MARKS.search(self.source):
            return None
        for all_of_them in (True, False):
            marked = self._run(self._marked(captured=all_of_them), variables, time)
            if marked is not None and _MARKS.sub("", _MARK.sub("", marked)) == plain:
                return self._find(marked, offset)
        return None

    def _find(self, marked: str, offset: int) -> Place | None:
        starts: list[int] = []
        runs: list[tuple[int, int]] = []
        stack: list[tuple[int, int]] = []
        written = at = 0
        for match in [*_MARK.finditer(marked), None]:
            end = len(marked) if match is None else match.start()
            if end > at and stack:
                number, done = stack[-1]
                starts.append(written)
                runs.append((number, done))
                stack[-1] = (number, done + end - at)
            written += end - at
            if match is None:
                break
            at = match.end()
            if match[1]:
                stack.append((int(match[1]), 0))
            elif stack:
                stack.pop()
        index = bisect_right(starts, offset) - 1
        if index < 0:
            return None
        number, done = runs[index]
        part = self.parts[number]
        if not part.literal:
            return Place(part.start, part.end, starts[index], part.conditions)
        at = min(part.start + done + offset - starts[index], part.end - 1)
        word = _WORD.search(self._source, part.start, at)
        start = word.start() if word else at
        stop = self._source.find("\n", start, part.end)
        return Place(start, max(start + 1, part.end if stop < 0 else stop), offset - (at - start), part.conditions)

    @cached_property
    def _source(self) -> str:
        return re.sub(r"\r\n|\r", "\n", self.source)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The pieces that write, in the order of the source."""
        outputs, conditions = _tokens(self._environment, self._source)
        parts: list[Part] = []
        tests = iter(conditions)
        for child, around, captured in _children(self._tree, tests):
            start, end, literal = outputs[len(parts)]
            if literal is not isinstance(child, nodes.TemplateData):
                raise AssertionError("the template's tokens and its tree do not agree")
            parts.append(Part(start, end, literal, around, captured))
        return tuple(parts)

    def _marked(self, *, captured: bool) -> jinja2.Template:
        if captured not in self._with_marks:
            self._with_marks[captured] = self._mark(captured=captured)
        return self._with_marks[captured]

    def _mark(self, *, captured: bool) -> jinja2.Template:
        """Compile the tree with marks in its outputs, and take them out again."""
        outputs = list(_outputs(self._tree))
        plain = [output.nodes for output in outputs]
        numbers = iter(range(1 << 30))
        for output in outputs:
            new: list[nodes.Expr] = []
            for child in output.nodes:
                number = next(numbers)
                if self.parts[number].captured and not captured:
                    new.append(child)
                    continue
                new += [_data(f"{_OPEN}{number}{_NUMBERED}", child), child, _data(_CLOSE, child)]
            output.nodes = new
        try:
            return self._environment.load(self._tree)
        finally:
            for output, children in zip(outputs, plain, strict=True):
                output.nodes = children


def _data(text: str, near: nodes.Node) -> nodes.TemplateData:
    return nodes.TemplateData(text, lineno=near.lineno)


def _tokens(environment: Environment, source: str) -> tuple[list[tuple[int, int, bool]], list[tuple[int, int]]]:
    """Give the spans of what writes (text and `{{ }}` tags, True for text), and those of `if` and `elif` tags."""
    outputs: list[tuple[int, int, bool]] = []
    conditions: list[tuple[int, int]] = []
    at = opened = 0
    word = ""
    for _, kind, value in environment.lexer.tokeniter(source, None):
        found = source.find(value, at)
        start = at if found < 0 else found
        at = start + len(value)
        if kind == "data" and value:
            outputs.append((start, at, True))
        elif kind in ("variable_begin", "block_begin"):
            opened, word = start, ""
        elif kind == "variable_end":
            outputs.append((opened, start + len(value.rstrip()), False))
        elif kind == "block_end" and word in ("if", "elif"):
            conditions.append((opened, start + len(value.rstrip())))
        elif kind == "name" and not word:
            word = value
    return outputs, conditions


def _outputs(node: nodes.Node) -> Iterator[nodes.Output]:
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Output):
            yield child
        else:
            yield from _outputs(child)


def _children(
    node: nodes.Node,
    tests: Iterator[tuple[int, int]],
    around: tuple[tuple[int, int], ...] = (),
    *,
    captured: bool = False,
) -> Iterator[tuple[nodes.Expr, tuple[tuple[int, int], ...], bool]]:
    """Give all that writes in the order of the source, with the conditions around it and whether it is captured."""
    if isinstance(node, nodes.Output):
        for child in node.nodes:
            yield child, around, captured
        return
    if isinstance(node, nodes.If):
        own = (*around, next(tests))
        yield from _each(node.body, tests, own, captured=captured)
        for other in node.elif_:
            yield from _children(other, tests, around, captured=captured)
        yield from _each(node.else_, tests, own, captured=captured)
        return
    inner = captured or isinstance(node, _CAPTURES)
    yield from _each(node.iter_child_nodes(), tests, around, captured=inner)


def _each(
    children: Iterable[nodes.Node],
    tests: Iterator[tuple[int, int]],
    around: tuple[tuple[int, int], ...],
    *,
    captured: bool,
) -> Iterator[tuple[nodes.Expr, tuple[tuple[int, int], ...], bool]]:
    for child in children:
        yield from _children(child, tests, around, captured=captured)
