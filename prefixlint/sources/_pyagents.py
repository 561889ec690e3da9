"""What frameworks write into the system text of an agent because a setting of it says so."""

from __future__ import annotations

from collections.abc import Iterator

from prefixlint.values import Attr, Call, Const, Field, Join, Lit, Map, Name, Op, Seq, Star, Value, bare

_TIME_SWITCHES = {
    "add_datetime_to_context": "add_history_to_context",
    "add_datetime_to_instructions": "add_history_to_messages",
}
"""Settings that put the time behind an agent's instructions, and those that send what was said before (agno 2, 1)."""
_AHEAD = ("description", "role", "instructions")
_BEHIND = ("expected_output", "additional_context")
"""Settings whose text stands ahead of the time, and behind it."""


def with_time(call: Call) -> Iterator[Value]:
    """Give the messages of an agent that its framework tells the time: `Agent(add_datetime_to_context=True, …)`."""
    given = dict(call.kwargs)
    for switch, history in _TIME_SWITCHES.items():
        on = given.get(switch)
        if on is None or not _is_true(on):
            continue
        at = (on.start, on.end)
        clock: Value = Call(Name("datetime.datetime.now", *at), (), (), *at)
        if "datetime_format" in given:
            clock = Call(Attr(clock, "strftime", *at), (given["datetime_format"],), (), *at)
        ahead = [_joined(given[key]) for key in _AHEAD if key in given]
        behind = [_joined(given[key]) for key in _BEHIND if key in given]
        said = (*ahead, Lit("\nThe current time is ", *at), Field(clock, "", "", *at), Lit(".\n", *at), *behind)
        entries = (("role", Lit("system", *at)), ("content", Join(said, call.start, call.end)))
        message = Map(tuple((Lit(key, *at), value) for key, value in entries), call.start, call.end)
        earlier = (Star(Op("?", (), *at), *at),) if history in given and _is_true(given[history]) else ()
        yield Seq("list", (message, *earlier), call.start, call.end)


def _is_true(value: Value) -> bool:
    held = bare(value)
    return isinstance(held, Const) and held.value is True


def _joined(value: Value) -> Value:
    """Give the lines of a list as one text."""
    if not isinstance(bare(value), Seq):
        return value
    return Call(Attr(Lit("\n", value.start, value.start), "join", value.start, value.start), (value,), (), *value[-2:])
