from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint.caches.marks import Marks, MarkStore
from prefixlint.marks import DEFAULT_TTL, UNMARKED, Block, Place, blocks
from prefixlint.model import MissCause

EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def ends(found, prompt):
    return [prompt[: block.end].split("|")[-1] for block in found]


def test_anthropic_blocks_in_wire_order():
    body = {
        "tools": [
            {"name": "look", "description": "looks up", "input_schema": {"type": "object"}, "cache_control": HOUR}
        ],
        "system": [
            {"type": "text", "text": "You help."},
            {"type": "text", "text": "Rules.", "cache_control": EPHEMERAL},
        ],
        "messages": [
            {"role": "user", "content": "Hi there"},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello", "cache_control": EPHEMERAL}]},
        ],
    }
    prompt = '|{"name": "look", "description": "looks up", "x": 1}|You help.|Rules.|Hi there|Hello|'
    found = blocks(body, prompt)
    assert [
        prompt[: b.end].endswith(t)
        for b, t in zip(found, ("looks up", "help.", "Rules.", "there", "Hello"), strict=True)
    ] == [True] * 5
    assert [b.ttl for b in found] == [3600, UNMARKED, DEFAULT_TTL, UNMARKED, DEFAULT_TTL]


def test_the_same_text_twice_is_found_in_order():
    body = {"messages": [{"role": "user", "content": "again"}, {"role": "user", "content": "again"}]}
    assert [b.end for b in blocks(body, "|again|again|")] == [6, 12]


def test_what_is_not_found_ends_where_the_block_before_it_did():
    image = {"type": "image", "source": {"type": "base64", "data": "AAAA"}, "cache_control": EPHEMERAL}
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]}
    text, picture = Place("messages", 0, 0), Place("messages", 0, 1)
    assert blocks(body, "|see|") == [Block(4, UNMARKED, text), Block(4, DEFAULT_TTL, picture)]


def test_text_that_json_escapes():
    body = {"tools": [{"name": "n", "description": 'say "hi"\nnow'}], "messages": []}
    prompt = '|{"name": "n", "description": "say \\"hi\\"\\nnow"}|'
    assert prompt[: blocks(body, prompt)[0].end].endswith("nnow")


def test_a_cache_point_marks_what_stands_before_it():
    body = {
        "toolConfig": {"tools": [{"toolSpec": {"name": "look"}}, {"cachePoint": {"type": "default"}}]},
        "system": [{"text": "Rules."}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
        "messages": [{"role": "user", "content": [{"cachePoint": {"type": "default"}}, {"text": "Hi"}]}],
    }
    assert [b.ttl for b in blocks(body, "|look|Rules.|Hi|")] == [DEFAULT_TTL, DEFAULT_TTL, UNMARKED]
    assert blocks({"system": [{"cachePoint": {}}], "messages": []}, "") == []


def test_automatic_caching_marks_the_last_block():
    body = {"cache_control": HOUR, "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}
    assert [b.ttl for b in blocks(body, "|a|b|")] == [UNMARKED, 3600]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, DEFAULT_TTL),
        ({"mode": "implicit", "ttl": "12h"}, 43_200),
        ({"mode": "explicit"}, UNMARKED),
        ("nonsense", DEFAULT_TTL),
    ],
)
def test_openai_breakpoints(options, expected):
    body = {"messages": [{"role": "user", "content": "a"}], "prompt_cache_options": options}
    assert [b.ttl for b in blocks(body, "|a|", implicit=True)] == [expected]
    explicit = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "prompt_cache_breakpoint": {}}]}]
    }
    assert [b.ttl for b in blocks(explicit, "|a|")] == [UNMARKED]  # an empty marker marks nothing
    marked = {
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"ttl": "30m"}}],
            }
        ]
    }
    assert [b.ttl for b in blocks(marked, "|a|")] == [1800]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "text",
        {},
        {"messages": None},
        {"messages": [None, 3, {"content": None}, {"content": [None, 3]}]},
        {"tools": "x", "system": 3, "messages": {"role": "user"}},
        {"toolConfig": [], "input": "hello"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"ttl": 5}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"ttl": "m"}}]}]},
    ],
)
def test_bodies_of_any_shape(body):
    found = blocks(body, "hello a")
    assert all(0 <= b.end <= 7 for b in found)


def store(**rest):
    return MarkStore(**({"lookback": 20, "most": 4, "minimum": 4, "ttl": 300.0} | rest))


def names(text, ends, namespace=None):
    return [(namespace, text[:end]) for end in ends]


def visit(cache, text, marks, now, visible, namespace=None, **rest):
    return cache.visit(names(text, marks.ends, namespace), marks, now, visible, **rest)


def test_of_too_many_marks_the_last_count():
    cache = store(most=2, minimum=0)
    marks = Marks([1, 2, 3], {0: None, 1: None, 2: None})
    assert visit(cache, "abc", marks, 0, 0).written == 3
    assert visit(cache, "axx", Marks([1, 2, 3], {0: None}), 1, 1).hit == 0
    assert visit(cache, "abx", Marks([1, 2, 3], {1: None}), 1, 1).hit == 2


def test_written_is_what_is_paid_for():
    cache = store()
    first = visit(cache, "abcdefgh", Marks([4, 8], {0: None, 1: None}), 0, 0)
    second = visit(cache, "abcdwxyz", Marks([4, 8], {0: None, 1: None}), 1, 1, shared=4)
    assert (first.hit, first.written, second.hit, second.written) == (0, 8, 4, 4)
    assert visit(cache, "abc", Marks([3], {0: None}), 2, 2, shared=3).losses == {MissCause.TOO_SHORT: 3}


def test_without_sliding_a_read_begins_nothing():
    cache = store(sliding=False)
    mark = Marks([4], {0: None})
    hits = [visit(cache, "abcd", mark, now, now).hit for now in (0, 200, 301)]
    assert hits == [0, 4, 0]


def test_namespaces_are_apart():
    cache, mark = store(), Marks([4], {0: None})
    visit(cache, "abcd", mark, 0, 0, "org-a")
    assert visit(cache, "abcd", mark, 1, 1, "org-b").hit == 0


requests_ = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=10), st.sets(st.integers(0, 9), max_size=5), st.integers(0, 3)),
    max_size=20,
)


@settings(max_examples=120, deadline=None)
@given(requests_, st.integers(0, 4), st.integers(0, 3), st.integers(1, 6), st.integers(0, 2))
def test_a_store_of_prefixes_says_the_same(requests, lookback, minimum, ttl, delay):
    """The same rule over a dictionary of texts, mark by mark, with a block for each letter."""
    cache = MarkStore(lookback=lookback, most=3, minimum=minimum, ttl=ttl)
    known, now = {}, 0
    for text, marked, wait in requests:
        now += wait
        chosen = sorted(i for i in marked if i < len(text))[-3:]
        usable = [i for i in chosen if i + 1 >= minimum]
        seen = [
            n
            for mark in usable
            for n in range(max(1, mark + 1 - lookback), mark + 2)
            if n >= minimum and text[:n] in known and known[text[:n]][0] <= now <= known[text[:n]][1]
        ]
        hit = max(seen, default=0)
        read = visit(cache, text, Marks(range(1, len(text) + 1), dict.fromkeys(chosen)), now, now + delay)
        assert read.hit == hit
        assert sum(read.losses.values()) == 0
        for n in {hit, *(i + 1 for i in usable)} - {0}:
            visible, expires = known.get(text[:n], (now + delay, -1))
            if expires < now:
                known[text[:n]] = (now + delay, now + ttl)
            else:
                known[text[:n]] = (min(visible, now + delay) if n - 1 in usable else visible, now + ttl)
