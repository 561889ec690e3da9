"""What a chat template may spend: a budget of units, and guards that charge it before work is done.

Templates come from the internet. One unit is about a byte made or a nanosecond of work; everything that can make much
out of little (operators, string methods, filters, conversions of containers to text) says first what it will cost.
The budget makes a refusal depend on the template and its input only; the clock is the last resort.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from jinja2.utils import Namespace

BUDGET = 256 * 2**20  # units of one rendering; at most four bytes a unit, so at most 1 GiB
TEXT_LIMIT = 64 * 2**20  # characters of one string; the longest context windows are below a tenth of it
SECONDS = 3.0
STEP = 100  # units of one loop iteration, one macro call, one value looked at
_CLOCK_EVERY = 100 * STEP
_INT_BITS = 10_000
_WIDTH = 2**20  # the widest padding, indentation or number of columns


class LimitError(Exception):
    """A template asked for more than the budget, or for something that is never the same twice."""


class Meter:
    """The budget of one rendering at a time."""

    __slots__ = ("_deadline", "_mark", "left")

    def __init__(self) -> None:
        self.left = self._mark = 0
        self._deadline = 0.0

    def fill(self, budget: int | None = None) -> None:
        """Start a rendering that may spend `budget` units, `BUDGET` if None."""
        self.left = self._mark = BUDGET if budget is None else budget
        self._deadline = time.monotonic() + SECONDS

    def tick(self) -> bool:
        """Charge one step; true, so that it can stand in a condition."""
        self.left -= STEP
        if self.left < self._mark:
            self._settle()
        return True

    def charge(self, units: int) -> None:
        """Charge work before it is done."""
        self.left -= units
        if self.left < self._mark:
            self._settle()

    def text(self, chars: int) -> None:
        """Charge a string of so many characters."""
        if chars > TEXT_LIMIT:
            raise LimitError("it makes a string longer than 64 Mi characters")
        self.charge(chars)

    def _settle(self) -> None:
        if self.left < 0:
            raise LimitError("it does too much work, or makes too much text")
        if time.monotonic() > self._deadline:
            raise LimitError(f"it ran for more than {SECONDS:g} seconds")
        self._mark = self.left - _CLOCK_EVERY


def width(value: Any) -> int:
    """Check a number that the template gives as a width or a count; other types pass as 0 (their call will fail)."""
    if not isinstance(value, int):
        return 0
    if value > _WIDTH:
        raise LimitError(f"it asks for a width of {value if value.bit_length() < 64 else 'too many'} characters")
    return max(int(value), 0)


class Guards:
    """Charges for operators, methods and conversions, against one meter."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def weigh(self, value: Any) -> int:
        """Charge a look at everything in a value, shared parts as often as they appear; give its size as text."""
        total = 0
        stack = [value]
        while stack:
            item = stack.pop()
            kind = type(item)
            if kind is str:
                total += len(item) + 4
            elif kind is dict:
                self.meter.charge(2 * STEP * len(item))
                stack.extend(item)
                stack.extend(item.values())
            elif kind is list or kind is tuple:
                self.meter.charge(STEP * len(item))
                stack.extend(item)
            elif isinstance(item, str | bytes):
                total += 4 * len(item)
            else:
                total += 16
                stack.extend(self._inside(item))
            if total > TEXT_LIMIT:
                raise LimitError("it makes a string longer than 64 Mi characters")
        self.meter.charge(total)
        return total

    def _inside(self, item: Any) -> Iterable[Any]:
        """Give what the text of an unusual value contains: subclasses and views of containers, namespaces."""
        if isinstance(item, Namespace):
            return [object.__getattribute__(item, "_Namespace__attrs")]
        if not isinstance(item, Collection) or isinstance(item, range):
            return ()
        self.meter.charge(2 * STEP * len(item))
        return [*item, *item.values()] if isinstance(item, Mapping) else item

    def looked_at(self, value: Any) -> Any:
        """Charge a comparison with a value, or its hash, and give the value."""
        kind = type(value)
        if kind is str:
            if len(value) > 4096:
                self.meter.charge(len(value) // 8)
        elif kind is list or kind is tuple or kind is dict:
            self.weigh(value)
        return value

    def finalize(self, value: Any) -> Any:
        """Charge the conversion to text of what a template prints (its text is charged when it is joined)."""
        if type(value) is not str and not isinstance(value, int | float):
            self.weigh(value)
        return value

    def concat(self, parts: Iterable[str]) -> str:
        """Join the output of a template or of a macro."""
        pieces = parts if type(parts) is list else list(parts)
        self.meter.text(sum(map(len, pieces)))
        return "".join(pieces)

    def text_join(self, values: tuple[Any, ...]) -> str:
        """Do what `~` does."""
        return self.concat([value if type(value) is str else str(self.finalize(value)) for value in values])

    def add(self, *operands: Any) -> Any:
        """Do what a chain of `+` does."""
        if len(operands) == 2:
            left, right = operands
            if type(left) is str and type(right) is str:
                self.meter.text(len(left) + len(right))
                return left + right
        for operand in operands:
            if type(operand) is not str:
                return self._add_pairwise(operands)
        self.meter.text(sum(map(len, operands)))
        return "".join(operands)

    def _add_pairwise(self, operands: tuple[Any, ...]) -> Any:
        result = operands[0]
        for operand in operands[1:]:
            if isinstance(result, int) and isinstance(operand, int):
                _check_bits(result.bit_length())
            elif hasattr(result, "__len__") and hasattr(operand, "__len__"):
                self.meter.text(8 * (len(result) + len(operand)))
            result = result + operand
        return result

    def multiply(self, left: Any, right: Any) -> Any:
        """Do what `*` does."""
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
        else:
            for items, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(items, str | bytes | list | tuple):
                    size = 1 if isinstance(items, str | bytes) else 8
                    self.meter.text(size * len(items) * max(times, 0))
        return left * right

    def power(self, left: Any, right: Any) -> Any:
        """Do what `**` does."""
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() * abs(right))
        return left**right

    def modulo(self, left: Any, right: Any) -> Any:
        """Do what `%` does, for numbers and for printf-like formats."""
        if isinstance(left, str | bytes):
            self.printf(left if isinstance(left, str) else left.decode("latin-1"), right)
        return left % right

    def printf(self, text: str, values: Any) -> None:
        """Charge a printf-like format: its widths, and its values as often as they can be named."""
        items = values if isinstance(values, tuple) else (values,)
        numbers = [int(number[:9]) for number in re.findall(r"%[^a-zA-Z%]*?(\d+)", text)]
        numbers += [int(number[:9]) for number in re.findall(r"\.(\d+)", text)]
        if "*" in text:
            numbers += [item for item in items if isinstance(item, int)]
        for number in numbers:
            self.meter.charge(width(number))
        fields = text.count("%")
        named = isinstance(values, Mapping)
        self.meter.text(len(text) + (fields if named else 1) * self.weigh(values if named else list(items)))

    def cut(self, value: Any, part: slice) -> Any:
        """Do what a slice does."""
        result = value[part]
        if isinstance(result, str):
            self.meter.charge(len(result))
        elif isinstance(result, Sequence):
            self.meter.charge(8 * len(result))
        return result

    def method(self, owner: str | bytes, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Charge a call of a string's method; give the arguments to call it with."""
        size = len(owner)
        first = args[0] if args else None
        if name in {"center", "ljust", "rjust", "zfill"}:
            size = max(size, width(first))
        elif name == "expandtabs":
            size += width(8 if first is None else first) * times(owner, "\t" if isinstance(owner, str) else b"\t")
        elif name == "replace" and len(args) > 1:
            size += times(owner, first) * (len(args[1]) if isinstance(args[1], str | bytes) else 0)
        elif name == "join" and first is not None:
            items = first if isinstance(first, list | tuple) else list(self.ticking(first))
            self.meter.charge(STEP * len(items))
            size = sum(len(item) + size for item in items if isinstance(item, str | bytes))
            args = (items, *args[1:])
        elif name == "translate" and isinstance(first, Mapping):
            size *= max([1, *(len(value) for value in first.values() if isinstance(value, str))])
        elif name in {"split", "rsplit", "splitlines"}:
            size += 64 * pieces(owner, None if name == "splitlines" else first)
        elif name == "encode":
            size *= 4
        self.meter.text(size)
        return args

    def ticking(self, items: Iterable[Any]) -> Iterator[Any]:
        """Charge a step for each item."""
        tick = self.meter.tick
        for item in items:
            tick()
            yield item


def times(text: Any, part: Any) -> int:
    """Say how often a part occurs in a text (the empty one: at each place)."""
    try:
        return int(text.count(part))
    except (TypeError, AttributeError):
        return 0


def pieces(text: str | bytes, separator: Any) -> int:
    """Say into how many pieces a text falls at most; without a separator, at white space and line ends."""
    if separator:
        return times(text, separator) + 1
    if isinstance(text, bytes) or not text.isascii():
        return len(text) // 2 + 1
    return sum(text.count(space) for space in " \t\n\r\x0b\x0c\x1c\x1d\x1e") + 1


def _check_bits(bits: int) -> None:
    if bits > _INT_BITS:
        raise LimitError("it makes a number of thousands of digits")


# Units a character (or an item) of filters that are slow: text wrapping, regular expressions, sorting.
_COSTS = {
    **dict.fromkeys(("urlize", "striptags"), 1000),
    **dict.fromkeys(("wordwrap", "pprint"), 100),
    **dict.fromkeys(("title", "wordcount", "urlencode", "xmlattr", "sort", "unique", "groupby", "dictsort"), 20),
    **dict.fromkeys(("escape", "e", "forceescape", "list"), 8),
    **dict.fromkeys(("min", "max", "join", "indent", "replace", "center", "truncate", "string", "trim", "safe"), 1),
    **dict.fromkeys(
        ("upper", "lower", "capitalize", "reverse", "format", "sum", "slice", "batch", "round", "int", "float", "attr"),
        1,
    ),
}
_LAZY = ("map", "select", "reject", "selectattr", "rejectattr", "batch", "slice", "unique", "items")
_NEVER_THE_SAME = ("random",)
_TESTS = (
    "in",
    "lower",
    "upper",
    "filter",
    "test",
    "ge",
    ">=",
    "eq",
    "equalto",
    "==",
    "ne",
    "!=",
    "lt",
    "lessthan",
    "<",
    "le",
    "<=",
    "gt",
    "greaterthan",
    ">",
)


def guard_filters(filters: dict[str, Callable[..., Any]], guards: Guards) -> None:
    """Replace the filters that can cost much by ones that charge first. Arguments and results stay the same."""
    for name in {*_COSTS, *_LAZY} & filters.keys():
        filters[name] = _guarded(name, filters[name], guards)
    for name in _NEVER_THE_SAME:
        filters[name] = never_the_same(name)


def guard_tests(tests: dict[str, Any], guards: Guards) -> None:
    """Replace the tests that compare by ones that charge first."""

    def guarded(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def charged(*values: Any) -> Any:
            return test(*map(guards.looked_at, values))

        return charged

    for name in _TESTS:
        if name in tests:
            tests[name] = guarded(tests[name])


def never_the_same(name: str) -> Callable[..., Any]:
    """Give a function that refuses: what it would give is random, so no prompt can be told from it."""

    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise LimitError(f"it uses {name!r}, whose result is random")

    return refuse


def _guarded(name: str, function: Callable[..., Any], guards: Guards) -> Callable[..., Any]:
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0
    cost = _COSTS.get(name, 0)
    extra = _EXTRAS.get(name)
    lazy = name in _LAZY
    meter = guards.meter

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        value = args[skipped] if len(args) > skipped else None
        for argument in (*args[skipped + 1 :], *kwargs.values()):
            if not isinstance(argument, str | int | float):
                guards.weigh(argument)
        if type(value) is str:
            meter.charge(cost * len(value))
        elif cost and value is not None and not isinstance(value, int | float):
            if isinstance(value, Iterator):
                value = list(guards.ticking(value))
                args = (*args[:skipped], value, *args[skipped + 1 :])
            meter.charge(cost * guards.weigh(value))
        if extra is not None:
            extra(guards, value, *args[skipped + 1 :], **kwargs)
        if name == "sum":
            return _sum(guards, function, args, kwargs)
        result = function(*args, **kwargs)
        return guards.ticking(result) if lazy else result

    return charged


def _sum(guards: Guards, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add up what is not numbers (lists) with charges; `args` are the environment, the items, attribute, start."""
    start = kwargs.get("start", args[3] if len(args) > 3 else 0)
    if isinstance(start, int | float):
        return function(*args, **kwargs)
    attribute = kwargs.get("attribute", args[2] if len(args) > 2 else None)
    for item in args[1]:
        start = guards.add(start, item if attribute is None else args[0].getitem(item, attribute))
    return start


def _indent(guards: Guards, value: Any, by: Any = 4, *_: Any, **__: Any) -> None:
    lines = times(value, "\n") + 1
    guards.meter.text(lines * (len(by) if isinstance(by, str) else width(by)))


def _replace(guards: Guards, value: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    guards.meter.text(times(str(value), str(old)) * len(str(new)))


def _join(guards: Guards, value: Any, d: Any = "", *_: Any, **__: Any) -> None:
    if hasattr(value, "__len__"):
        guards.meter.text(len(value) * len(str(d)))


def _wordwrap(guards: Guards, value: Any, *args: Any, **kwargs: Any) -> None:
    wrapstring = kwargs.get("wrapstring", args[2] if len(args) > 2 else None)
    guards.meter.text(len(str(value)) * (1 + len(str(wrapstring or ""))))


def _round(_guards: Guards, _value: Any, precision: Any = 0, *_: Any, **__: Any) -> None:
    if isinstance(precision, int) and abs(precision) > 300:  # a float has no more decimal places
        raise LimitError("it rounds to hundreds of decimal places")


def _int(_guards: Guards, value: Any, *_: Any, **__: Any) -> None:
    if isinstance(value, str | bytes) and len(value) > _INT_BITS // 4:  # four bits a hexadecimal digit
        raise LimitError("it reads a number of thousands of digits")


def _format(guards: Guards, value: Any, *args: Any, **kwargs: Any) -> None:
    guards.printf(str(value), kwargs or args)


def _width(guards: Guards, _value: Any, *args: Any, **kwargs: Any) -> None:
    for number in (*args, *kwargs.values()):
        guards.meter.charge(width(number))


_EXTRAS: dict[str, Callable[..., None]] = {
    "indent": _indent,
    "replace": _replace,
    "join": _join,
    "wordwrap": _wordwrap,
    "round": _round,
    "int": _int,
    "format": _format,
    "center": _width,
    "batch": _width,
    "slice": _width,
}
