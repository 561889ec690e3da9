"""Bodies side by side: nothing is lost, what is equal is found, and changes stand at their place."""

import json

from hypothesis import given
from hypothesis import strategies as st

from prefixlint import alignment, bodies, redact
from prefixlint.alignment import Alignment

TEXT = st.text("ab 0:\n", max_size=12)
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": TEXT})
BODY = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, max_size=6)},
    optional={
        "system": TEXT,
        "tools": st.lists(st.fixed_dictionaries({"name": st.sampled_from("xyz"), "description": TEXT}), max_size=3),
        "toolConfig": st.fixed_dictionaries({"tools": st.lists(st.fixed_dictionaries({"name": TEXT}), max_size=2)}),
    },
)


def differences(a, b):
    return Alignment([], redact.shown()).differences(bodies.aligned(a, b))


@given(BODY, BODY)
def test_every_leaf_of_both_bodies_is_in_a_row(a, b):
    rows = bodies.aligned(a, b)
    for body, side in ((a, "earlier"), (b, "later")):
        held = sorted(leaf.path for row in rows for leaf in getattr(row, side))
        assert held == sorted(leaf.path for leaf in bodies.leaves(body))


@given(BODY, BODY)
def test_a_difference_is_found_exactly_where_bodies_differ(a, b):
    changed = [row for row in differences(a, b) if row.relation != "equal"]
    assert bool(changed) == (bodies.first_difference(a, b) is not None)


@given(BODY, BODY)
def test_no_more_is_equal_than_there_is(a, b):
    equal = sum(map(alignment.equal, bodies.aligned(a, b)))
    assert equal <= min(alignment.size(bodies.leaves(body)) for body in (a, b))


@given(BODY)
def test_a_body_equals_itself(a):
    assert all(row.relation == "equal" for row in differences(a, a))


def test_a_message_in_the_middle_is_new():
    say = [{"role": "user", "content": text} for text in ("one", "two", "three")]
    found = differences({"messages": [say[0], say[2]]}, {"messages": say})
    assert [(d.relation, d.path, d.last) for d in found] == [
        ("equal", "messages[0]", "messages[0]"),
        ("added", "messages[1]", "messages[1]"),
        ("equal", "messages[2]", "messages[2]"),
    ]


def test_values_of_other_kinds_are_shown():
    one, two = ({"tools": [{"name": "t", "parameters": {"limit": n}}], "messages": []} for n in (5, "5"))
    (row,) = differences(one, two)
    assert (row.relation, row.path, row.before, row.after) == ("changed", "tools[0].parameters.limit", "5", "5")


def test_secrets_at_named_places_are_masked():
    one, two = ({"messages": [{"role": "user", "content": [{"api_key": v}]}]} for v in ("first one", "other one"))
    (row,) = differences(one, two)
    assert (row.before, row.after) == (redact.SECRET, redact.SECRET)


def test_long_histories_that_share_nothing_take_no_time():
    one, two = (
        {"messages": [{"role": ("user", "assistant")[i % 2], "content": f"{side} {i}"} for i in range(1500)]}
        for side in "ab"
    )
    rows = bodies.aligned(one, two)
    assert len(rows) == 1500
    assert json.dumps([row.path for row in rows[-1:]]) == '["messages[1499]"]'
