"""Exported traces: read again by the trace reader they give the same hits, and nothing of the text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import engines, logs
from prefixlint.export import Exporter, Row
from prefixlint.model import BlockHashes
from prefixlint.simulate import BlockArrival, rates, run_blocks

TRACE = Path(__file__).parent.parent / "fixtures" / "traces" / "mooncake-conversation.jsonl.gz"


def ids(*tokens):
    return np.array(tokens, np.uint32)


def write(rows, path=None, **options):
    exporter = Exporter(**options)
    data = b"".join(exporter.lines(rows))
    if path is not None:
        path.write_bytes(data)
    return [json.loads(line) for line in data.splitlines()], exporter.result()


def ideal(path):
    requests = list(logs.read([str(path)], log_format="mooncake"))
    arrivals = (BlockArrival(i, r.namespace, r.content) for i, r in enumerate(requests))
    return rates(run_blocks(arrivals, [engines.load("ideal")]).engines["ideal"])


def test_lines_by_hand():
    rows = [
        Row("m", ids(1, 2, 3, 4, 5), 100.0, 7),
        Row("m", ids(1, 2, 3, 4, 5), 100.25, None),
        Row("m", ids(1, 2, 9), None, 0),
        Row("m", ids(1, 2, 3), 101.0, 3),
        Row("other", ids(1, 2, 3, 4), 102.0, 3),
    ]
    lines, result = write(rows, block=2)
    assert lines == [
        {"timestamp": 0, "input_length": 5, "output_length": 7, "hash_ids": [0, 1, 2]},
        {"timestamp": 250, "input_length": 5, "hash_ids": [0, 1, 2]},
        {"input_length": 3, "output_length": 0, "hash_ids": [0, 3]},
        {"timestamp": 1000, "input_length": 3, "output_length": 3, "hash_ids": [0, 4]},
        {"timestamp": 2000, "input_length": 4, "output_length": 3, "hash_ids": [5, 6]},
    ]
    assert (result.requests, result.blocks, result.distinct, result.empty) == (5, 12, 7, 0)
    assert result.sizes == (2,)


prompts = st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 2), max_size=12)), max_size=15)


@given(prompts, st.integers(1, 5), st.sampled_from([None, b"", b"salt"]))
def test_equal_ids_are_equal_prefixes(requests, block, salt):
    rows = [Row(namespace, ids(*tokens), None, None) for namespace, tokens in requests]
    lines, result = write(rows, block=block, salt=salt)
    kept = [r for r in requests if r[1]]
    meaning = {}
    for (namespace, tokens), line in zip(kept, lines, strict=True):
        assert line["input_length"] == len(tokens)
        assert len(line["hash_ids"]) == -(-len(tokens) // block)
        for index, name in enumerate(line["hash_ids"]):
            prefix = (namespace, tuple(tokens[: (index + 1) * block]))
            assert meaning.setdefault(name, prefix) == prefix
            assert 0 <= name < 2**53
    assert len(set(meaning.values())) == len(meaning) == result.distinct
    assert result.empty == len(requests) - len(kept)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2500)), min_size=1, max_size=8))
def test_the_reader_finds_the_same_hits(tmp_path_factory, requests):
    """Prompts that begin alike: a block hits where an earlier prompt has the same tokens up to its end."""
    path = tmp_path_factory.mktemp("export") / "trace.jsonl"
    tokens = [np.arange(n, dtype=np.uint32) * (family + 1) for family, n in requests]
    write([Row("m", prompt, float(i), 1) for i, prompt in enumerate(tokens)], path)
    seen, hits = set(), 0
    for prompt in tokens:
        for end in range(512, prompt.size + 512, 512):
            piece = prompt[:end].tobytes()
            hits += (piece in seen) * (min(end, prompt.size) - end + 512)
            seen.add(piece)
    found = ideal(path)
    assert found.prompt_tokens == sum(p.size for p in tokens)
    assert found.cached_tokens == hits


def test_a_hash_trace_keeps_its_hit_rate(tmp_path):
    with gzip.open(TRACE, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(2_000), strict=False)]
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    requests = list(logs.read([str(source)]))
    lines, _ = write([Row("m", r.content, r.time, r.usage.completion) for r in requests], tmp_path / "again.jsonl")
    assert ideal(tmp_path / "again.jsonl") == ideal(source)
    first = rows[0]["timestamp"]
    assert [line["timestamp"] + first for line in lines] == [row["timestamp"] for row in rows]
    assert [line["output_length"] for line in lines] == [row["output_length"] for row in rows]


def test_salted_ids_agree_between_exports_with_the_same_salt_only():
    one, two = [Row("m", ids(1, 2, 3), None, None)], [Row("m", ids(9), None, None), Row("m", ids(1, 2, 3), None, None)]
    salted = [write(rows, block=2, salt=b"s")[0][-1]["hash_ids"] for rows in (one, two)]
    assert salted[0] == salted[1]
    assert write(one, block=2, salt=b"t")[0][-1]["hash_ids"] != salted[0]
    assert write(one, block=2)[0][-1]["hash_ids"] == [0, 1]
    assert write(two, block=2)[0][-1]["hash_ids"] == [1, 2]


def test_a_long_salt_is_taken_whole():
    a, b = (write([Row("m", ids(1), None, None)], salt=b"x" * 100 + end)[0] for end in (b"1", b"2"))
    assert a != b


def test_unsalted_ids_tell_nothing_of_the_text():
    """Two logs of one shape give the same bytes, whatever their tokens are."""
    shape = [(0, 1, 2), (0, 1, 3), (4, 1, 2)]
    one, two = (
        b"".join(Exporter(block=1).lines([Row("m", ids(*(mapped[t] for t in row)), None, 1) for row in shape]))
        for mapped in ([10, 11, 12, 13, 14], [900, 7, 33, 5, 6])
    )
    assert one == two


@pytest.mark.parametrize("name", ["\ud800", "a\x00b", "", 7, -1, 2**70])
def test_hashes_of_any_kind(name):
    content = BlockHashes([name, "x"], [512, 3], 512)
    lines, _ = write([Row("\udcff", content, None, None), Row("\udcff", content, None, None)])
    assert lines[0]["hash_ids"] == lines[1]["hash_ids"] == [0, 1]


def test_a_number_and_its_text_are_two_hashes():
    rows = [Row("m", BlockHashes([name], [4], 4), None, None) for name in (1, "1")]
    assert [line["hash_ids"] for line in write(rows)[0]] == [[0], [1]]


def test_times_before_the_first_do_not_become_negative():
    rows = [Row("m", ids(1), 10.0, None), Row("m", ids(1), 9.0, None)]
    assert [line["timestamp"] for line in write(rows)[0]] == [0, 0]


def test_blocks_need_tokens():
    with pytest.raises(ValueError, match="0 tokens"):
        Exporter(block=0)


def test_blocks_of_several_sizes_are_told():
    rows = [Row("m", BlockHashes([1, 2], [size, size], size), None, None) for size in (60, 57)]
    assert write(rows)[1].sizes == (57, 60)
