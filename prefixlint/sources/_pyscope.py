"""State of reading one Python file: the module being summarised, and the scopes in which its code is followed."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from prefixlint.declared import NOTHING, Declared
from prefixlint.pysyntax import extent
from prefixlint.sources import CallSite, Class, Function, Sink
from prefixlint.values import Call, Either, Name, Op, Param, Value, Var

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@lru_cache(maxsize=20_000)
def words(name: str) -> frozenset[str]:
    """Give the lower-case words of an identifier.

    `buildSystemPrompt`, `build_system_prompt` -> build, system, prompt.
    """
    return frozenset(word.lower() for word in _WORDS.findall(name))


@dataclass(slots=True)
class Module:
    """What has been found so far in a file. `defined` are its module-level names, `once` those bound exactly once."""

    data: bytes
    starts: list[int]
    package: str
    stem: str
    prompt_file: bool
    declared: Declared = NOTHING
    defined: frozenset[str] = frozenset()
    once: frozenset[str] = frozenset()
    imports: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    sinks: list[Sink] = field(default_factory=list)
    calls: list[CallSite] = field(default_factory=list)
    renders: list[CallSite] = field(default_factory=list)
    sunk: set[tuple[str, int]] = field(default_factory=set)

    def add_constant(self, name: str, value: Value) -> None:
        """Add what a module name or class attribute may hold; further values are alternatives."""
        old = self.constants.get(name)
        if old is None or old is value:
            self.constants[name] = value
        elif isinstance(old, Either):
            if len(old.options) < MAX_OPTIONS and all(option is not value for option in old.options):
                self.constants[name] = Either((*old.options, value), old.start, old.end)
        else:
            self.constants[name] = Either((old, value), old.start, old.end)


MAX_OPTIONS = 8
"""Alternatives kept for one value: more are rare and would multiply."""


@dataclass(slots=True)
class Scope:
    """A function, class body or module while its statements are followed. `env` holds what its names hold now.

    `spread` is the name of a function's `**kwargs`.
    """

    module: Module
    func: str = ""
    cls: str = ""
    parent: Scope | None = None
    selfname: str = ""
    env: dict[str, Value] = field(default_factory=dict)
    returns: list[Value] = field(default_factory=list)
    loops: int = 0
    failures: int = 0
    override: tuple[int, int] | None = None
    spread: str = ""

    def at(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Give the byte range of a node."""
        if self.override is not None:
            return self.override
        return extent(node, self.module.starts)

    def lookup(self, name: str, start: int, end: int) -> Value:
        """Give what a name means here."""
        scope: Scope | None = self
        while scope is not None:
            value = scope.env.get(name)
            if value is not None and (scope is self or not scope.cls or scope.func):
                if scope.is_module and name in self.module.defined and (scope is not self or name in self.module.once):
                    break
                return Var(name, value, start, end)
            scope = scope.parent
        if name in self.module.imports:
            return Name(self.module.imports[name], start, end)
        return Name(f".{name}" if name in self.module.defined else name, start, end)

    @property
    def is_module(self) -> bool:
        """Tell whether this is the module's own scope."""
        return not self.func and not self.cls

    def sink(
        self, kind: str, value: Value, role: str = "text", name: str = "", *, aside: bool = False, at_run: bool = False
    ) -> None:
        """Note a sink once; what is made `at_run` a framework makes anew for each request."""
        start, end = value.start, value.end
        if (kind, id(value)) in self.module.sunk:
            return
        self.module.sunk.add((kind, id(value)))
        self.module.sinks.append(
            Sink(
                kind,
                value,
                start,
                end,
                role,
                "<run>" if at_run else self.func,
                name,
                self.loops > 0,
                aside or self.failures > 0,
            )
        )

    def tell(self, value: Value, role: str) -> None:
        """Give the text of a sink that says no role the one that its name says."""
        for at, sink in enumerate(self.module.sinks):
            if sink.value is value and sink.kind == "text" and sink.role == "text":
                self.module.sinks[at] = replace(sink, role=role)

    def unknown(self, node: ast.expr) -> Op:
        """Give the value of what is not followed."""
        return Op("?", (), *self.at(node))

    def note_call(self, call: Call, *, renders: bool) -> None:
        """Keep a call for the functions and templates of other files."""
        (self.module.renders if renders else self.module.calls).append(CallSite(call, self.func))

    def self_attribute(self, name: str, start: int, end: int) -> Value:
        """Give `self.name`: what this function has just put there, or what the class may hold."""
        value = self.env.get(f"{self.selfname}.{name}")
        if value is not None:
            return Var(f"{self.selfname}.{name}", value, start, end)
        return Name(f".{self.cls}.{name}", start, end)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool) -> tuple[list[str], str]:
    """Give a function's parameter names in order, and the name of its instance (empty for a plain function)."""
    args = function.args
    found = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    selfname = ""
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    if method and found and not static:
        selfname = found.pop(0)
    found += [arg.arg for arg in args.kwonlyargs]
    return found, selfname


def bind_parameters(scope: Scope, function: ast.FunctionDef | ast.AsyncFunctionDef, names: list[str]) -> None:
    """Put a function's parameters into its scope."""
    by_name = {arg.arg: arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    for extra in (function.args.vararg, function.args.kwarg):
        if extra is not None:
            by_name[extra.arg] = extra
            names = [*names, extra.arg]
    scope.spread = function.args.kwarg.arg if function.args.kwarg is not None else ""
    starts = scope.module.starts
    for name in names:
        arg = by_name[name]
        begin = starts[arg.lineno - 1] + arg.col_offset
        scope.env[name] = Param(scope.func, name, begin, begin + len(name.encode()))
