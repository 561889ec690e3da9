"""The wire order of bodies, and where two of them differ first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.bodies import common_prefix, first_difference, leaves, locate

SYSTEM = {"role": "system", "content": "You maintain the timetable of a ferry line."}


def user(text):
    return {"role": "user", "content": text}


def paths(body):
    return [leaf.path for leaf in leaves(body)]


def test_tools_come_before_system_before_messages_whatever_the_key_order():
    body = {"messages": [user("hi")], "system": "s", "tools": [{"name": "t"}], "temperature": 0}
    assert paths(body) == ["tools[0].name", "system", "messages[0].role", "messages[0].content"]


def test_a_message_is_read_in_wire_order():
    message = {"content": "c", "tool_call_id": "k1", "role": "tool"}
    assert paths({"messages": [message]}) == ["messages[0].role", "messages[0].tool_call_id", "messages[0].content"]


def test_cache_markers_are_no_difference():
    marked = {"system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]}
    plain = {"system": [{"type": "text", "text": "s"}]}
    assert first_difference(marked, plain) is None


def test_the_character_is_the_number_of_equal_leading_characters():
    a = {"messages": [{"role": "system", "content": "[2031-03-04T09:12:44Z] You grade essays."}]}
    b = {"messages": [{"role": "system", "content": "[2031-03-04T09:12:51Z] You grade essays."}]}
    found = first_difference(a, b)
    assert (found.path, found.char, found.grows) == ("messages[0].content", 18, False)


def test_a_grown_history_is_growth_and_not_a_change():
    a = {"messages": [SYSTEM, user("one")]}
    b = {"messages": [SYSTEM, user("one"), {"role": "assistant", "content": "two"}]}
    found = first_difference(a, b)
    assert (found.path, found.char, found.grows) == ("messages[2].role", 0, True)
    assert first_difference(b, a).grows is False


def test_a_raw_prompt_that_goes_on_is_growth():
    found = first_difference({"prompt": "abc"}, {"prompt": "abcdef"})
    assert (found.path, found.char, found.grows) == ("prompt", 3, True)


def test_swapped_results_differ_at_their_id():
    a = {"messages": [{"role": "tool", "tool_call_id": "k2", "content": "x"}]}
    b = {"messages": [{"role": "tool", "tool_call_id": "k1", "content": "y"}]}
    found = first_difference(a, b)
    assert (found.path, found.char) == ("messages[0].tool_call_id", 1)


def test_key_order_inside_a_tool_is_a_difference():
    a = {"tools": [{"name": "t", "description": "d"}]}
    b = {"tools": [{"description": "d", "name": "t"}]}
    assert first_difference(a, b).path == "tools[0].description"


@pytest.mark.parametrize(("a", "b"), [(1, "1"), (True, 1), ("x", ["x"]), (1.0, 1)])
def test_another_type_is_a_difference(a, b):
    assert first_difference({"prompt": a}, {"prompt": b}) is not None


def test_depth_is_no_danger():
    deep = value = {}
    for _ in range(3_000):
        value["a"] = {}
        value = value["a"]
    value["a"] = "end"
    assert sum(1 for _ in leaves({"input": deep})) == 1


def plain_common_prefix(a, b):
    count = 0
    while a[count : count + 1] == b[count : count + 1] != "":
        count += 1
    return count


@given(st.text(alphabet="ab", max_size=40), st.text(alphabet="ab", max_size=40))
def test_common_prefix_equals_the_plain_way(a, b):
    assert common_prefix(a, b) == plain_common_prefix(a, b)
    assert common_prefix("x" * 50 + a, "x" * 50 + b) == 50 + plain_common_prefix(a, b)


json_values = st.recursive(
    st.none() | st.text() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_a_body_never_differs_from_itself(value):
    assert first_difference({"messages": value}, {"messages": value}) is None


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("ferry", ("messages[0].content", 32)),
        ("|user|", ("messages[1].content", 0)),
        ("9:20", ("messages[1].content", 11)),
        ("find it", ("tools[0].function.description", 0)),
        ("|end|", None),
    ],
)
def test_a_place_in_the_rendered_prompt_is_found_in_the_body(mark, expected):
    tool = {"type": "function", "function": {"name": "look", "description": "find it"}}
    body = {"messages": [SYSTEM, user("\n Why is the 9:20 missing?")], "tools": [tool]}
    rendered = f"|system|{SYSTEM['content']}\n look: find it|user|Why is the 9:20 missing?|end|"
    assert locate(body, rendered, rendered.index(mark)) == (
        expected and (expected[0], expected[1] + 2 * (mark == "9:20"))
    )
