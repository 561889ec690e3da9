"""The Jinja environment of chat templates: transformers' settings, a sandbox, and limits on time and size.

Equal to the environment of `transformers.utils.chat_template_utils` (5.x) in what a template can see. It differs where
a template asks for what is random, for automatic escaping, or for more than its budget: these raise.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.idtracking import VAR_LOAD_PARAMETER
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from prefixlint.jinja_limits import Guards, LimitError, Meter, guard_filters, guard_tests, never_the_same, width

# What `strftime_now` says where a log has no time: the date that the Llama 3 templates fall back to.
FIXED_TIME = datetime(2024, 7, 26, tzinfo=UTC).timestamp()

_DICT_ATTRIBUTES = frozenset(dir(dict))


class _MeteredCode(CodeGenerator):
    """Writes calls of the guards where the plain generator writes operators, and ticks into loops and macros."""

    environment: Environment

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ticked: set[int] = set()

    def blockvisit(self, nodes: Any, frame: Frame) -> None:
        if id(nodes) in self._ticked:
            self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802  Jinja's visitor names
        self._ticked.add(id(node.body))
        if node.test is not None:
            tick = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None, lineno=node.lineno)
            node.test = nodes.And(tick, node.test, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Macro(self, node: nodes.Macro, frame: Frame) -> None:  # noqa: N802
        self._ticked.add(id(node.body))
        super().visit_Macro(node, frame)

    def visit_CallBlock(self, node: nodes.CallBlock, frame: Frame) -> None:  # noqa: N802
        self._ticked.add(id(node.body))
        super().visit_CallBlock(node, frame)

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier, frame: Frame) -> None:  # noqa: N802
        del frame
        self.fail("autoescape blocks are not supported in chat templates", node.lineno)

    def visit_EvalContextModifier(self, node: nodes.EvalContextModifier, frame: Frame) -> None:  # noqa: N802
        del frame
        self.fail("evaluation context changes are not supported in chat templates", node.lineno)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802
        operands: list[nodes.Expr] = [node.right]
        left = node.left
        while isinstance(left, nodes.Add):
            operands.append(left.right)
            left = left.left
        self._call("add", [left, *reversed(operands)], frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.text_join((")
        for item in node.nodes:
            self.visit(item, frame)
            self.write(", ")
        self.write("))")

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        if node.attr in _DICT_ATTRIBUTES or not self._key(node.node, node.attr, "getattr", frame):
            super().visit_Getattr(node, frame)

    def _key(self, node: nodes.Expr, key: str, otherwise: str, frame: Frame) -> bool:
        """Look a key up in place where a variable holds a dict that has it, as the environment would; else ask that.

        False, and nothing written, where the node is no variable that is known to be there (as those of loops are).
        """
        if not isinstance(node, nodes.Name) or node.ctx != "load":
            return False
        name = frame.symbols.ref(node.name)
        load = frame.symbols.find_load(name)
        if load is None or load[0] != VAR_LOAD_PARAMETER or self.parameter_is_undeclared(name):
            return False
        known = f"{name}[{key!r}] if type({name}) is dict and {key!r} in {name}"
        self.write(f"({known} else environment.{otherwise}({name}, {key!r}))")
        return True

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if not isinstance(node.arg, nodes.Slice):
            key = node.arg.value if isinstance(node.arg, nodes.Const) else None
            if type(key) is not str or not self._key(node.node, key, "getitem", frame):
                super().visit_Getitem(node, frame)
            return
        self.write("environment.cut(")
        self.visit(node.node, frame)
        self.write(", slice(")
        for bound in (node.arg.start, node.arg.stop, node.arg.step):
            if bound is None:
                self.write("None")
            else:
                self.visit(bound, frame)
            self.write(", ")
        self.write("))")

    def visit_Pair(self, node: nodes.Pair, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.key, nodes.Const):
            self.visit(node.key, frame)
        else:
            self._call("looked_at", [node.key], frame)
        self.write(": ")
        self.visit(node.value, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("{")
        for item in node.items:
            self.visit_Pair(item, frame)
            self.write(", ")
        self.write("}")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        """Charge for what is compared. A comparison with a constant is short, unless it searches in something."""
        short = isinstance(node.expr, nodes.Const) or all(isinstance(part.expr, nodes.Const) for part in node.ops)
        self.write("(")
        if short:
            self.visit(node.expr, frame)
        else:
            self._call("looked_at", [node.expr], frame)
        for part in node.ops:
            if short and part.op not in {"in", "notin"}:
                self.visit(part, frame)
            else:
                self.write(f" {_OPERATORS[part.op]} ")
                self._call("looked_at", [part.expr], frame)
        self.write(")")

    def _call(self, name: str, arguments: list[nodes.Expr], frame: Frame) -> None:
        self.write(f"environment.{name}(")
        for argument in arguments:
            self.visit(argument, frame)
            self.write(", ")
        self.write(")")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        """Fold nothing but literals: folding would run the template's expressions while compiling."""
        if not isinstance(node, nodes.TemplateData | nodes.Const):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


_OPERATORS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
    "notin": "not in",
}


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks what the model wrote; it renders as its body."""

    tags = {"generation"}  # noqa: RUF012  the declaration of the base class

    def parse(self, parser: Any) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _TemplateDict:
    """`dict` for templates: the constructor, without what hangs on the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _TemplateNamespace(Namespace):
    """`namespace` for templates: attributes that begin with an underscore are refused, as transformers does."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


_PLAIN = frozenset({str, dict, list, tuple, int, float, bool, LoopContext, _TemplateNamespace})


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot have the attribute {name!r}")


class _Formatter(SandboxedFormatter):
    """`str.format` with charges for widths and for values."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._guards = environment.guards

    def format_field(self, value: Any, format_spec: str) -> str:
        for number in "".join(char if char.isdigit() else " " for char in format_spec).split():
            self._guards.meter.charge(width(int(number[:9])))
        self._guards.meter.text(self._guards.weigh(value))
        return str(super().format_field(value, format_spec))

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._guards.weigh(value)
        return super().convert_field(value, conversion)


class Environment(ImmutableSandboxedEnvironment):
    """One environment serves one template, and one thread at a time; `begin` starts a rendering."""

    code_generator_class = _MeteredCode
    intercepted_binops = frozenset({"+", "*", "**", "%"})  # `+` is written by the code generator

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=[_GenerationTag, jinja2.ext.loopcontrols],
        )
        self.meter = Meter()
        self.guards = guards = Guards(self.meter)
        self._now = FIXED_TIME
        self._safe: dict[tuple[type, str], bool] = {}
        self.tick = self.meter.tick
        self.add, self.cut, self.looked_at = guards.add, guards.cut, guards.looked_at
        self.text_join, self.concat = guards.text_join, guards.concat  # type: ignore[method-assign]
        self.finalize = guards.finalize
        self.binop_table.update({"*": guards.multiply, "**": guards.power, "%": guards.modulo})
        guard_filters(self.filters, guards)
        guard_tests(self.tests, guards)
        self.known_json: dict[int, tuple[Any, dict[Any, str]]] = {}
        self.filters["tojson"] = self._tojson
        self.globals.update(
            {
                "raise_exception": _raise_exception,
                "strftime_now": self._strftime_now,
                "dict": _TemplateDict(),
                "namespace": _TemplateNamespace,
                "lipsum": never_the_same("lipsum"),
            }
        )

    def begin(self, time: float | None, budget: int | None = None) -> None:
        """Start a rendering: its budget, and the time (seconds since the epoch) that `strftime_now` gives."""
        self.meter.fill(budget)
        self._now = FIXED_TIME if time is None else time

    def load(self, tree: nodes.Template) -> jinja2.Template:
        """Compile a template. Each rendering copies its globals: they are one plain dict, since Jinja's copy slowly."""
        return jinja2.Template.from_code(self, self.compile(tree), dict(self.globals))

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up `obj.attribute`. Whether it is safe depends on the type alone where the type is a plain one."""
        kind = type(obj)
        if kind is dict and attribute not in _DICT_ATTRIBUTES:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        if kind not in _PLAIN or attribute in {"format", "format_map"}:
            return super().getattr(obj, attribute)
        try:
            value = getattr(obj, attribute)
        except AttributeError:
            return super().getattr(obj, attribute)
        safe = self._safe.get((kind, attribute))
        if safe is None:
            safe = self._safe[kind, attribute] = self.is_safe_attribute(obj, attribute, value)
        return value if safe else self.unsafe_undefined(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look up `obj[argument]`; a key made by the template is charged, since it is hashed and may be printed."""
        kind = type(argument)
        if kind is not str and kind is not int:
            self.guards.looked_at(argument)
        return super().getitem(obj, argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805, PYI063  Jinja's
        """Call something; methods of strings are charged first."""
        if type(__obj) is not Macro:
            owner = getattr(__obj, "__self__", None)
            if isinstance(owner, str | bytes):
                args = __self.guards.method(owner, __obj.__name__, args)
            elif isinstance(owner, int) or owner is int:
                for arg in args:
                    width(len(arg) * 2**10 if isinstance(arg, bytes) else arg)
            for arg in args:
                __self.guards.looked_at(arg)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Wrap `str.format` and `str.format_map` with the charging formatter."""
        if not isinstance(value, types.BuiltinMethodType | types.MethodType):
            return None
        owner = value.__self__
        if not isinstance(owner, str) or value.__name__ not in {"format", "format_map"}:
            return None
        formatter = _Formatter(self)
        if value.__name__ == "format_map":
            return lambda mapping: formatter.vformat(owner, (), mapping)
        return lambda *args, **kwargs: formatter.vformat(owner, args, kwargs)

    def _tojson(
        self,
        x: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Give JSON without HTML escapes, as transformers does."""
        if indent is not None or separators is not None:
            self.guards.weigh([indent, separators])
        known = self.known_json.get(id(x))
        style = (bool(ensure_ascii), indent, separators, bool(sort_keys))
        if known is not None and known[0] is x:
            text = known[1].get(style)
            if text is not None:
                self.meter.charge(len(text))
                return text
        size = self.guards.weigh(x)
        step = len(indent) if isinstance(indent, str) else width(indent)
        if step > 32 or len("".join(separators or ())) > 64:
            raise LimitError("it asks for JSON with too much space between the values")
        if step:
            self.meter.text(size * (1 + step * _depth(x)))
        text = json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        if known is not None and known[0] is x:
            known[1][style] = text
        return text

    def _strftime_now(self, format: str) -> str:  # noqa: A002  the name is the template's
        if len(format) > 1000:
            raise LimitError("it asks for a date of more than 1,000 characters")
        return datetime.fromtimestamp(self._now, tz=UTC).strftime(format)


def _depth(value: Any) -> int:
    """Give the number of levels of a nested value (its size has been charged)."""
    depth = 0
    level = [value]
    while level:
        depth += 1
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
        level = inner
    return depth


def _raise_exception(message: Any) -> None:
    raise jinja2.exceptions.TemplateError(str(message))
