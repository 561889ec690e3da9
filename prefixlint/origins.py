"""Why a value changes: the sources that flow into it, or, where it cannot be followed, what its name says."""

from __future__ import annotations

import sys
from dataclasses import replace

from prefixlint import placeholders, volatility
from prefixlint.prompts import Origin, Period, Scope, Volatility
from prefixlint.questions import (
    date_pattern,
    has_default_text,
    is_direct,
    is_element,
    is_long_text,
    is_written_out,
    owner,
)
from prefixlint.resolve import Frame, Resolver
from prefixlint.sources import Function
from prefixlint.values import (
    Attr,
    Call,
    Const,
    Either,
    Elem,
    Field,
    Item,
    Join,
    Lit,
    Loop,
    Map,
    Name,
    Op,
    Param,
    Seq,
    Slice,
    Star,
    Template,
    Value,
    Var,
    bare,
    dotted,
    text_of,
)
from prefixlint.verdicts import (
    CONSTANT,
    TEXT_METHODS,
    UNKNOWN,
    Verdict,
    aged,
    callable_only,
    entry_named,
    gives_types,
    imported,
    is_builtin,
    is_delta,
    is_setting,
    listed,
    lists_files,
    named,
    path_named,
    refined,
    set_like,
    stored,
    union,
    weakened,
    without,
    writes_out,
)
from prefixlint.wordset import word_set

MAX_SITES = 12
"""Call sites that are read for one parameter."""
MAX_HOPS = 3
"""Callers of callers that are read for one parameter."""
MAX_STEPS = 400
"""Values read for one place of a prompt."""

_ORDER_FREE = word_set(
    "next sorted len sum min max any all bool isinstance jinja.filter.sort jinja.filter.length jinja.filter.count"
)
_COUNTS = word_set("len jinja.filter.length jinja.filter.count sum bool isinstance any all hasattr callable type")
_PURE = word_set(
    "str repr int float round format list tuple dict reversed zip map filter enumerate iter next print abs ascii bytes"
)
_WRITTEN = word_set("format join replace replace* format_map % render substitute safe_substitute")
_CORE = word_set("clock date age random identity environment counter selection object order")
_SELECT = word_set("exclude include ignore skip omit only fields default cls key")
"""Keywords that say what is written, and how; they are not written themselves."""
ORDER = Volatility(Scope.DEPLOY, Period.PROCESS)
_CALL = Volatility(Scope.REQUEST, Period.CALL)

_TIME_OF_DAY = frozenset(["hour", "minute"])
"""What `.replace` sets where it leaves nothing of a clock but the day."""


class Judge:
    """Judges values. One instance per run: it remembers what call sites it is reading, against recursion."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.project = resolver.project
        self._active: set[tuple[int, int]] = set()
        self._callers: dict[tuple[str, str, str, str], Verdict | None] = {}
        self._hops = 0
        self._cuts = 0
        self._known: dict[tuple[int, tuple[bool, ...], tuple[int, ...], str], tuple[Value, Verdict]] = {}
        self._steps = 0

    def judge(self, value: Value, frame: Frame) -> Verdict:
        """Give why a value changes."""
        self._steps = 0
        self._active.clear()
        return self._judge(value, frame)

    def _judge(self, value: Value, frame: Frame) -> Verdict:
        key = (id(value), id(frame.args))
        known = (id(value), frame.state, frame.counted, frame.summary.path) if frame.args is None else None
        if known is not None and known in self._known:
            return self._known[known][1]
        self._steps += 1
        if key in self._active or self._steps > MAX_STEPS or len(self._active) > 60 or frame.depth > 8:
            self._cuts += 1
            return UNKNOWN
        self._active.add(key)
        cuts = self._cuts
        try:
            verdict = self._of(value, frame)
        finally:
            self._active.discard(key)
        if known is not None and cuts == self._cuts:
            self._known[known] = (value, verdict)
        return verdict

    def _of(self, value: Value, frame: Frame) -> Verdict:
        if isinstance(value, (Lit, Const)):
            return CONSTANT
        handler = getattr(self, f"_{type(value).__name__.lower()}", None)
        verdict: Verdict = UNKNOWN if handler is None else handler(value, frame)
        return verdict

    def _all(self, values: tuple[Value, ...], frame: Frame) -> Verdict:
        return union([self._judge(value, frame) for value in values]) if values else CONSTANT

    def _origin(self, source: volatility.Source, value: Value, frame: Frame, label: str) -> Verdict:
        if source.kind in ("constant", "static"):
            return CONSTANT
        origin = Origin(source.kind, source.volatility, label, frame.span(value))
        if frame.frozen and not label.startswith("jinja."):  # a template is made at import, and rendered later
            origin = replace(origin, volatility=origin.volatility.frozen(), frozen=True)
        return Verdict((replace(origin, once=True) if frame.once else origin,))

    def _or_named(self, verdict: Verdict, value: Value, name: str, frame: Frame) -> Verdict:
        if verdict.origins or verdict.constant:
            return verdict
        said = named(name)
        return listed(said) if said.origins and is_written_out(self.resolver, value, frame) else said

    def _var(self, value: Var, frame: Frame) -> Verdict:
        return self._or_named(self._judge(value.value, frame), value, value.name, frame)

    def _param(self, value: Param, frame: Frame) -> Verdict:
        bound = self.resolver.argument(value, frame)
        if bound is not None:
            return self._or_named(self._judge(*bound), value, value.name, frame)
        if value.func and not value.func.endswith("<lambda>"):
            handed = self._from_callers(value, frame)
            if handed is not None:
                return self._or_named(handed, value, value.name, frame)
        said = named(value.name)
        return weakened(said, "identity") if has_default_text(value, frame) else said

    def _from_callers(self, value: Param, frame: Frame, entry: str = "") -> Verdict | None:
        """Give what the calls of a function hand over, or an entry of it; None where no call is known or understood."""
        summary = frame.summary
        function = summary.functions.get(value.func)
        if function is None:
            return None
        key = (summary.path, value.func, value.name, entry)
        if key not in self._callers and self._hops < MAX_HOPS:
            self._callers[key] = None
            self._hops += 1
            try:
                self._callers[key] = self._handed_over(value, frame, function, entry)
            finally:
                self._hops -= 1
        handed = self._callers.get(key)
        # an order may be looked up or sorted on the way, an id made once for all requests of a conversation
        return None if handed is None else weakened(handed, "order", "random")

    def _handed_over(self, value: Param, frame: Frame, function: Function, entry: str) -> Verdict | None:
        summary = frame.summary
        verdicts: list[Verdict] = []
        for site, other in self.project.call_sites(summary, value.func)[:MAX_SITES]:
            caller = Frame(other, site.func, None, not site.func, frame.depth + 1)
            given = self.resolver.bound(site.call, caller, function).get(value.name)
            if given is not None:
                held, inner = self.resolver.resolve(*given)
                options = [bare(each) for each in (held.options if isinstance(held, Either) else (held,))]
                maps = [each for each in options if isinstance(each, Map)]
                if entry and len(maps) == len(options):
                    chosen = [self.resolver.entry(each, inner, entry) for each in maps]
                    verdicts += [UNKNOWN if each is None else self._judge(*each) for each in chosen]
                    continue
                unread = not isinstance(held, Lit) and is_long_text(self.resolver, *given)
                verdicts.append(UNKNOWN if unread else self._judge(*given))
        return union(verdicts) if verdicts else None

    def _name(self, value: Name, frame: Frame) -> Verdict:
        last = value.dotted.rsplit(".", 1)[-1]
        if not value.dotted.startswith((".", "/")):
            source = volatility.of_call(value.dotted)
            if source is not None and not callable_only(value.dotted):
                return self._origin(source, value, frame, value.dotted)
        resolved, inner = self.resolver.resolve(value, frame)
        if resolved is not value and not isinstance(resolved, Name):
            return self._or_named(self._judge(resolved, inner), value, last, frame)
        found = self.project.definition(value.dotted, frame.summary)
        if found is not None and found.kind in ("func", "class", "module"):
            return CONSTANT
        return path_named(value.dotted.lstrip("./"))

    def _attr(self, value: Attr, frame: Frame) -> Verdict:
        path = dotted(value)
        if path is not None:
            source = volatility.of_call(path)
            if source is not None and source.kind != "constant" and not callable_only(path):
                return self._origin(source, value, frame, path)
        resolved, inner = self.resolver.resolve(value, frame)
        if resolved is not value:
            return self._or_named(self._judge(resolved, inner), value, value.name, frame)
        base = self._judge(value.base, frame) if is_direct(self.resolver, value.base, frame) else UNKNOWN
        coarser = refined(base, value.name)
        if base.origins and any(origin.evidence == "flow" for origin in base.origins):
            # of a thing that was drawn elsewhere, one attribute may differ and another be the same for all
            drawn_here = isinstance(self.resolver.resolve(value.base, frame)[0], Call)
            return coarser if drawn_here else weakened(coarser, "selection")
        said = path_named((path or f"{owner(value.base)}.{value.name}").lstrip("./"))
        if is_written_out(self.resolver, value.base, frame):
            return listed(said)
        if is_element(self.resolver, value.base, frame):
            return stored(said)
        if said.constant or said.origins:
            return said
        kept = without(coarser, "counter", "random")  # a number has no attributes of its own kind
        return kept if kept.origins else UNKNOWN

    def _item(self, value: Item, frame: Frame) -> Verdict:
        resolved, inner = self.resolver.resolve(value, frame)
        if resolved is not value:
            return self._judge(resolved, inner)
        key = text_of(value.key)
        if dotted(value.base) == "os.environ" and key is not None and is_setting(key):
            return UNKNOWN
        base = self._holder(value.base, key, frame) if is_direct(self.resolver, value.base, frame) else UNKNOWN
        flowing = tuple(origin for origin in base.origins if origin.evidence == "flow")
        if flowing:
            return Verdict(flowing)
        if key is not None:
            said = entry_named(owner(value.base), key)
            if is_written_out(self.resolver, value.base, frame):
                return listed(said)
            return stored(said) if is_element(self.resolver, value.base, frame) else said
        return UNKNOWN

    def _holder(self, value: Value, key: str | None, frame: Frame) -> Verdict:
        """Judge what holds an entry: of a mapping that callers write out, the entry alone."""
        held, inner = self.resolver.resolve(value, frame)
        entry = self._from_callers(held, inner, key) if key and isinstance(held, Param) and held.func else None
        return self._judge(value, frame) if entry is None else entry

    def _slice(self, value: Slice, frame: Frame) -> Verdict:
        base = self._judge(value.base, frame)
        upper = value.upper.value if isinstance(value.upper, Const) else None
        if value.lower is None and upper in (4, 7, 10):
            kept = [
                replace(o, kind="date", volatility=Volatility(o.volatility.scope, min(Period.DAY, o.volatility.period)))
                if o.kind == "clock"
                else o
                for o in base.origins
            ]
            return Verdict(tuple(kept) if upper != 4 else (), base.constant)
        return base

    def _join(self, value: Join, frame: Frame) -> Verdict:
        return self._all(value.parts, frame)

    def _star(self, value: Star, frame: Frame) -> Verdict:
        return self._judge(value.value, frame)

    def _either(self, value: Either, frame: Frame) -> Verdict:
        return self._all(value.options, frame)

    def _field(self, value: Field, frame: Frame) -> Verdict:
        inner = self._judge(value.value, frame)
        if value.conversion in ("", "r", "s"):
            address = self.address(value.value, frame)
            if address is not None:
                return Verdict((address,))
        return refined(inner, "format", value.spec) if value.spec else inner

    def address(self, value: Value, frame: Frame) -> Origin | None:
        """Give the origin of an object that prints its address."""
        held, inner = self.resolver.resolve(value, frame)
        found = self.resolver.instance(held, inner)
        klass = self.project.klass(found) if found is not None else None
        if klass is None or klass.printable:
            return None
        label = f"{found.name if found else ''}()"
        return Origin("object", Volatility(Scope.DEPLOY, Period.PROCESS), label, inner.span(held))

    def _seq(self, value: Seq, frame: Frame) -> Verdict:
        inner = self._all(value.items, frame)
        if value.kind != "set" or len(value.items) < 2:
            return inner
        return union([self._order(value, frame, "a set"), inner])

    def _order(self, value: Value, frame: Frame, label: str) -> Verdict:
        return Verdict((Origin("order", ORDER, label, frame.span(value), "flow", frame.frozen),))

    def _map(self, value: Map, frame: Frame) -> Verdict:
        return self._all(tuple(entry[1] for entry in value.entries), frame)

    def _loop(self, value: Loop, frame: Frame) -> Verdict:
        source = self._judge(value.source, frame)
        body = self._judge(value.body, frame._replace(counted=(*frame.counted, id(value.source))))
        verdict = union([source, body])
        if value.kind == "set" and not gives_types(value):
            return union([self._order(value, frame, "a set comprehension"), verdict])
        return verdict

    def _elem(self, value: Elem, frame: Frame) -> Verdict:
        call = bare(value.source)
        if (
            isinstance(call, Call)
            and isinstance(call.func, Name)
            and call.func.dotted in ("range", "itertools.count", "count")
        ):
            return self._counter(value, frame, call.func.dotted)
        return without(self._judge(value.source, frame), "order", "selection")

    def _counter(self, value: Value, frame: Frame, label: str) -> Verdict:
        source = value.source if isinstance(value, Elem) else value
        if id(source) in frame.counted or not frame.loop:
            return UNKNOWN
        return Verdict((Origin("counter", _CALL, label, frame.span(value)),))

    def _template(self, value: Template, frame: Frame) -> Verdict:
        del frame
        return union([named(name) for name in placeholders.names(value.text.text, value.style)] or [CONSTANT])

    def _op(self, value: Op, frame: Frame) -> Verdict:
        if value.name in ("compare", "not", "?", "while", "loop") or value.name.startswith("handed"):
            return UNKNOWN
        inner = self._all(value.operands, frame)
        if value.name == "counter":
            return self._counter(value, frame, "counter")
        if value.name == "total":  # an attribute that grows from call to call, in a loop or not
            return Verdict((Origin("counter", _CALL, dotted(value.operands[0]) or "a total", frame.span(value)),))
        if value.name == "index":
            return self._counter(value.operands[0], frame, "enumerate") if value.operands else UNKNOWN
        subtracted = value.name == "-" and len(value.operands) == 2 and not any(map(is_delta, value.operands))
        if subtracted and any(origin.kind == "clock" for origin in inner.origins):
            return Verdict(tuple(aged(origin) for origin in inner.origins))
        if value.name in ("|", "&", "^", "-") and set_like(value):
            return union(
                [self._order(value, frame, "a set"), Verdict(tuple(o for o in inner.origins if o.kind != "order"))]
            )
        if value.name == "lambda":
            return inner
        return Verdict(inner.origins, inner.constant and value.name != "?")

    def _call(self, value: Call, frame: Frame) -> Verdict:
        path = dotted(value.func)
        if path is not None:
            special = self._known_call(value, path, frame)
            if special is not None:
                return special
        found = self.resolver.callee(value, frame)
        if found is not None:
            verdict = UNKNOWN
            if found[0].returns is not None:
                verdict = self._judge(found[0].returns, self.resolver.entered(value, frame, *found))
            return verdict if verdict.origins or verdict.constant else self._said_by_callee(value, frame)
        if isinstance(value.func, Attr):
            return self._method(value, value.func, frame)
        if path is not None and "." in path.strip("."):
            source = volatility.of_method(path.rsplit(".", 1)[-1])
            if source is not None and path.split(".", 1)[0] not in sys.stdlib_module_names:
                return self._origin(source, value, frame, f"{path.lstrip('./')}()")
        inner = self._arguments(value, frame)
        if path in _PURE or path in ("textwrap.dedent", "textwrap.indent", "inspect.cleandoc", "json.dumps"):
            return self._or_json(value, path or "", frame, inner)
        written = self._all((*value.args, *(v for k, v in value.kwargs if not set(k.split("_")) & _SELECT)), frame)
        kept = tuple(origin for origin in written.origins if origin.kind in _CORE and origin.evidence == "flow")
        if writes_out(path or "") and (kept or inner.constant):
            return Verdict(kept, not kept)
        return self._said_by_callee(value, frame)

    def _or_json(self, value: Call, path: str, frame: Frame, inner: Verdict) -> Verdict:
        if path != "json.dumps" or not value.args or any(key == "sort_keys" for key, _ in value.kwargs):
            return inner
        if self.keyed_elsewhere(value.args[0], frame):
            origin = Origin("json", Volatility(Scope.REQUEST, Period.CALL), "json.dumps", frame.span(value))
            return union([Verdict((origin,)), inner])
        return inner

    def keyed_elsewhere(self, value: Value, frame: Frame) -> bool:
        """Tell whether a dict's key order may come from outside this code: merged, spread, or built from `**kwargs`."""
        held, inner = self.resolver.resolve(value, frame)
        if isinstance(held, Map):
            return any(key is None for key, _ in held.entries)
        if isinstance(held, Op):
            return held.name == "|"
        if isinstance(held, Param):
            function = inner.summary.functions.get(held.func)
            return function is not None and held.name not in function.params  # `**kwargs`
        if isinstance(held, Loop) and held.kind == "dict":
            return any(origin.kind == "order" for origin in self._judge(held.source, inner).origins)
        return isinstance(held, Call) and isinstance(held.func, Name) and held.func.dotted == "vars"

    def _known_call(self, value: Call, path: str, frame: Frame) -> Verdict | None:
        """Judge functions that sources.toml or Python itself defines."""
        if path in _COUNTS:
            return UNKNOWN
        if path in _ORDER_FREE:
            return without(self._arguments(value, frame), "order", "selection")
        if path.startswith((".", "/")):
            return None
        if not imported(value.func) and path.split(".", 1)[0] not in ("datetime", "date", "uuid", "random", "jinja"):
            return None
        source = volatility.of_call(path)
        if source is None:
            return None
        if path in ("random.Random", "numpy.random.default_rng", "numpy.random.RandomState") and not value.args:
            source = volatility.Source("selection", _CALL)
        if path in ("set", "frozenset") and not (value.args and not gives_types(value.args[0])):
            return CONSTANT
        if path in ("id", "hash", "object", "set", "frozenset") and not is_builtin(value.func):
            return None
        if path in ("os.getenv", "os.environ.get") and value.args and is_setting(text_of(value.args[0]) or "?"):
            return UNKNOWN
        verdict = self._origin(source, value, frame, f"{path}()")
        if source.kind == "clock" and path.rsplit(".", 1)[-1] in ("strftime", "strftime_now") and value.args:
            return refined(verdict, "strftime", date_pattern(self.resolver, value.args[0], frame))
        if source.kind in ("order", "selection") and not lists_files(path):
            given = self._arguments(value, frame)
            return union([verdict, without(given, "order") if source.kind == "selection" else given])
        return verdict

    def _arguments(self, value: Call, frame: Frame) -> Verdict:
        """Judge what is handed over; which entries of a mapping that is spread are used is not known."""
        given = self._all((*value.args, *(item for name, item in value.kwargs if name != "**")), frame)
        spread = [self._judge(item, frame) for name, item in value.kwargs if name == "**"]
        if not spread:
            return given
        return union([given, *map(weakened, spread)])

    def _method(self, value: Call, func: Attr, frame: Frame) -> Verdict:
        written = func.name in _WRITTEN
        direct = written or func.name in TEXT_METHODS or is_direct(self.resolver, func.base, frame)
        argument = text_of(value.args[0]) if value.args else None
        asked = argument if func.name == "get" else None
        base = self._holder(func.base, asked, frame) if direct else UNKNOWN
        if func.name == "pop":
            base = without(base, "order")  # one element, as a rule the only one
        if func.name == "strftime" and value.args:
            argument = date_pattern(self.resolver, value.args[0], frame)
        flowing = Verdict(tuple(origin for origin in base.origins if origin.evidence == "flow"))
        if flowing.origins:
            given = {name for name, _ in value.kwargs}
            coarser = refined(flowing, "date" if given >= _TIME_OF_DAY else func.name, argument)
            if func.name in ("format", "join"):
                return union([base, self._arguments(value, frame)])
            return coarser
        if written:
            return union([base, self._arguments(value, frame)])
        if func.name in ("get", "pop", "setdefault") and argument is not None:
            said = path_named(f"{owner(func.base)}.{argument}".lstrip("."))
            if is_written_out(self.resolver, func.base, frame):
                said = listed(said)
            return said if said.origins else UNKNOWN
        source = volatility.of_method(func.name)
        if source is not None and dotted(func.base) not in ("re", "regex", "pattern"):
            return self._origin(source, value, frame, f"{func.name}()")
        if base.origins and (func.name in TEXT_METHODS or volatility.is_step(func.name)):
            piece = func.name == "split" and value.args and is_long_text(self.resolver, func.base, frame)
            return refined(weakened(base) if piece else base, func.name, argument)
        return self._said_by_callee(value, frame)

    def _said_by_callee(self, value: Call, frame: Frame) -> Verdict:
        name = dotted(value.func) or (value.func.name if isinstance(value.func, Attr) else "")
        if name.split(".", 1)[0] in sys.stdlib_module_names and imported(value.func):
            return UNKNOWN
        source = volatility.of_callee(name) if name else None
        if source is None:
            return UNKNOWN
        label = f"{name.lstrip('./')}()"
        return Verdict((Origin(source.kind, source.volatility, label, frame.span(value), "name", weak=source.weak),))
