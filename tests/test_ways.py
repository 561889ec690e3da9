from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.radix import PrefixIndex
from prefixlint.ways import Ways


def ids(text):
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint32)


def ways_of(*sequences):
    return Ways.of((namespace, ids(prompt), ids(output)) for namespace, prompt, output in sequences)


def depths(ways, way):
    return [ways.depth[node] for node in way]


def test_ways_part_where_sequences_part_and_end_where_they_end():
    ways = ways_of((None, "abcd", "ef"), (None, "abxy", ""), (None, "abcdeg", ""), ("other", "ab", ""))
    assert len(ways) == 4
    assert [ways.size(i) for i in range(4)] == [4, 4, 6, 2]
    assert depths(ways, ways.prompt(0)) == [2, 4]
    assert depths(ways, ways.whole(0)) == [2, 4, 5, 6]
    assert depths(ways, ways.prompt(1)) == depths(ways, ways.whole(1)) == [2, 4]
    assert depths(ways, ways.prompt(2)) == [2, 4, 5, 6]
    assert ways.prompt(0)[0] == ways.prompt(1)[0]
    assert ways.prompt(1)[1] != ways.prompt(0)[1]
    assert set(ways.prompt(3)).isdisjoint(ways.whole(0))


def test_nothing_has_no_way():
    ways = ways_of((None, "", ""), (None, "", "ab"), (None, "a", ""))
    assert [list(ways.prompt(i)) for i in range(2)] == [[], []]
    assert list(ways.whole(0)) == []
    assert depths(ways, ways.whole(1)) == [1, 2]
    assert ways.size(1) == 0
    assert ways.names(0, [0, 0]) == [0, 0]
    assert len(Ways.of([])) == 0


def test_a_prompt_that_ends_inside_of_an_earlier_one_is_told_apart_from_what_went_on():
    """A note stays with the end of its sequence when a later one splits the node there."""
    ways = ways_of((None, "abcdef", ""), (None, "abc", ""), (None, "a", "bcdef"))
    assert depths(ways, ways.prompt(0)) == depths(ways, ways.whole(2)) == [1, 3, 6]
    assert (ways.size(0), ways.size(1), ways.size(2)) == (6, 3, 1)


def test_rows_may_have_any_numbers():
    tree = PrefixIndex(noting=True)
    for row, text in ((7, "abc"), (2, "abx")):
        tree.match_insert(ids(text), row, output=ids("x"))
    ways = Ways([tree], [7, 2])
    assert [ways.size(i) for i in range(2)] == [3, 3]
    assert ways.names(0, [2]) == ways.names(1, [2])
    assert ways.names(0, [3]) != ways.names(1, [3])


def test_an_index_that_is_not_asked_notes_nothing():
    tree = PrefixIndex()
    tree.match_insert(ids("abc"), 0, output=ids("d"))
    assert [ends for _, _, ends in tree.nodes()] == [(), (), ()]


sequences_ = st.lists(
    st.tuples(st.sampled_from([None, "n"]), st.text("ab", max_size=8), st.text("ab", max_size=4)), max_size=20
)


@settings(max_examples=150, deadline=None)
@given(sequences_)
def test_ways_say_what_texts_say(sequences):
    ways = ways_of(*sequences)
    names = {}
    for i, (namespace, prompt, output) in enumerate(sequences):
        assert ways.size(i) == len(prompt)
        way, whole = ways.prompt(i), ways.whole(i)
        assert whole[: len(way)] == way
        assert depths(ways, whole) == sorted(set(depths(ways, whole)))
        assert depths(ways, whole)[-1:] == ([len(prompt + output)] if prompt + output else [])
        for end, name in enumerate(ways.names(i, range(1, len(prompt) + 1)), 1):
            assert names.setdefault((namespace, prompt[:end]), name) == name
        for j, (other, text, more) in enumerate(sequences):
            same = 0
            while (
                namespace == other and same < min(len(prompt), len(text + more)) and prompt[same] == (text + more)[same]
            ):
                same += 1
            shared = [node for node in way if node in ways.whole(j)]
            assert depths(ways, shared)[-1:] == ([same] if same else [])
    assert len(set(names.values())) == len(names)
