"""Places for marks, as people name them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.errors import UsageError
from prefixlint.marks import UNMARKED, Block, Place, blocks
from prefixlint.spots import Spot, parse, placed

BODY = {
    "tools": [{"name": "look"}, {"name": "find"}],
    "system": [{"type": "text", "text": "Rules."}, {"type": "text", "text": "Today."}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Book."}, {"type": "text", "text": "Ask."}]},
        {"role": "assistant", "content": "Answer."},
        {"role": "user", "content": "More."},
    ],
}
BLOCKS = blocks(BODY, "look find Rules. Today. Book. Ask. Answer. More.")
NAMES = ["look", "find", "Rules.", "Today.", "Book.", "Ask.", "Answer.", "More."]


def marked(text, found=BLOCKS):
    return {NAMES[index]: ttl for index, ttl in placed(found, parse(text)).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tools", {"find": None}),
        ("tools[0]", {"look": None}),
        ("system", {"Today.": None}),
        ("system[0]:1h,messages", {"Rules.": 3600, "More.": None}),
        ("messages[0]", {"Ask.": None}),
        ("messages[0][0]:30m", {"Book.": 1800}),
        ("messages[-2], messages[-1]", {"Answer.": None, "More.": None}),
        ("messages[7],system[-3],messages[0][5]", {}),
        ("none", {}),
    ],
)
def test_places_stand_for_blocks(text, expected):
    assert marked(text) == expected


@pytest.mark.parametrize(
    "text", ["", "tool", "system[0][1]", "messages[", "messages[x]", "system:5", "tools,,system", "system:1h:2h"]
)
def test_what_is_no_place_is_refused(text):
    with pytest.raises(UsageError) as error:
        parse(text)
    assert error.value.slug == "bad-marks"


def test_leading_system_messages_are_the_system_text():
    body = {
        "messages": [
            {"role": "system", "content": "Rules."},
            {"role": "developer", "content": "Today."},
            {"role": "user", "content": "Ask."},
            {"role": "system", "content": "Late."},
        ]
    }
    found = [block.place for block in blocks(body, "Rules. Today. Ask. Late.")]
    assert found == [Place("system", 0), Place("system", 1), Place("messages", 0), Place("messages", 1)]


spots = st.builds(
    Spot,
    st.sampled_from(["tools", "system"]),
    st.integers(-9, 9),
    st.just(-1),
    st.none() | st.sampled_from([45.0, 300.0, 3600.0, 43200.0]),
) | st.builds(Spot, st.just("messages"), st.integers(-9, 9), st.integers(-9, 9), st.none() | st.just(1800.0))


@given(st.lists(spots, min_size=1, max_size=4))
def test_places_are_read_as_they_are_written(chosen):
    assert list(parse(",".join(map(str, chosen)))) == chosen


def test_a_prompt_without_blocks_has_no_marks():
    assert placed([], parse("tools,system")) == {}
    assert placed([Block(3, UNMARKED, Place("system", 0))], parse("tools,system")) == {0: None}
