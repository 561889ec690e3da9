"""Traces of block hashes, of lengths, and of usage: what each says about a prompt, and what it does not."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.errors import LogRefusedError
from prefixlint.logs import fetch, new_index, read
from prefixlint.logs._blocks import block_hashes
from prefixlint.model import BlockHashes, Latency, NoPrompt, Request, Skip, Text, Usage

SAMPLES = Path(__file__).parent.parent / "fixtures" / "logs" / "samples"
TRACELAB = Path(__file__).parent.parent / "fixtures" / "traces" / "tracelab"
DYNAMO = Path(__file__).parent.parent / "fixtures" / "logs" / "dynamo"


def requests_of(path):
    found = list(read([str(path)]))
    assert all(isinstance(item, Request) for item in found), found
    return found


@pytest.fixture
def log(tmp_path):
    def read_values(*values):
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
        try:
            return list(read([str(path)]))
        except LogRefusedError as refused:
            return [refused]

    return read_values


# --- block hashes ---


def test_last_block_is_the_partial_one():
    assert block_hashes([7, 8], 40, 32, tail="t") == BlockHashes([7, 8], [32, 8], 32)


def test_tokens_without_a_hash_are_a_block_that_nothing_else_has():
    one, other = (block_hashes([7, 8], 70, 32, tail=tail) for tail in ("a", "b"))
    assert list(one.sizes) == [32, 32, 6]
    assert one.hashes[:2] == other.hashes[:2] == [7, 8]
    assert one.hashes[2] != other.hashes[2]


def test_local_hashes_are_named_by_their_scope():
    assert block_hashes([7], 32, 32, tail="t", scope="s1").hashes == ["s1:7"]


@pytest.mark.parametrize(
    ("hashes", "total", "block"),
    [
        (None, 10, 16),
        ([True], 10, 16),
        ([1.5], 10, 16),
        ([[1]], 10, 16),
        ([1, 2, 3], 10, 16),
        ([1], 0, 16),
        ([], 0, 16),
        ([1], 1 << 40, 16),
        ([1], 10, 0),
        ([1], 10, None),
    ],
)
def test_hashes_that_do_not_fit_are_none(hashes, total, block):
    assert block_hashes(hashes, total, block, tail="t") is None


@given(st.integers(1, 100), st.integers(1, 5000), st.integers(0, 60))
def test_sizes_add_up_and_fit_in_blocks(block, total, count):
    found = block_hashes(list(range(count)), total, block, tail="t")
    if found is None:
        assert total <= (count - 1) * block
    else:
        assert sum(found.sizes) == total
        assert all(size > 0 for size in found.sizes)
        assert all(size <= block for size in found.sizes[:count])
        assert len(found.sizes) == len(found.hashes)


def test_bailian_conversations_are_chains():
    found = requests_of(SAMPLES / "qwen_bailian_trace.jsonl")
    assert [r.session for r in found] == ["10", "10", "12", "10"]
    assert [r.time for r in found] == [0.0, 4.2, 31.0, 75.5]
    assert found[0].content == BlockHashes([1, 2, 3], [16, 16, 8], 16)
    assert [sum(r.content.sizes) for r in found] == [40, 70, 33, 90]
    assert found[1].usage == Usage(prompt=70, completion=19)
    assert [r.fields["type"] for r in found] == ["text", "text", "search", "text"]


def test_bailian_chain_whose_start_is_cut_off_keeps_one_session(log):
    row = {"parent_chat_id": 5, "timestamp": 1.0, "input_length": 16, "output_length": 1, "type": "text", "turn": 3}
    found = log({**row, "chat_id": 6, "hash_ids": [1]}, {**row, "chat_id": 7, "parent_chat_id": 6, "hash_ids": [1]})
    assert [r.session for r in found] == ["5", "5"]


def test_weka_documents_count_full_blocks_and_keep_their_ids_apart(tmp_path):
    found = requests_of(SAMPLES / "weka_trace.json")
    assert [r.content.hashes[0] for r in found] == ["trace_9001:1"] * 3
    assert [list(r.content.sizes) for r in found] == [
        [64] * 4 + [44],
        [64] * 6 + [36],
        [64] * 3 + [8],
    ]
    assert [r.content.hashes[-1] for r in found] != [found[0].content.hashes[-1]] * 3
    assert [r.time for r in found] == [0.0, 3.0, 40.0]
    assert [r.part for r in found] == [0, 1, 2]
    assert [r.model for r in found] == ["claude-opus-4-5-20251101"] * 2 + ["claude-haiku-4-5"]
    assert found[0].latency == Latency(total=1.2)
    document = json.loads((SAMPLES / "weka_trace.json").read_text("utf-8"))
    path = tmp_path / "all.jsonl"
    path.write_text("\n".join(json.dumps({**document, "id": f"t{n}"}) for n in range(3)), "utf-8")
    assert len({r.content.hashes[0] for r in requests_of(path)}) == 3
    document["hash_id_scope"] = "global"
    path.write_text(json.dumps(document), "utf-8")
    assert requests_of(path)[0].content.hashes[0] == 1


def test_weka_nested_agents_add_up_their_times(log):
    inner = {"t": 1.0, "in": 64, "hash_ids": [1]}
    nested = {"t": 10.0, "requests": [{"t": 5.0, "requests": [inner]}, inner]}
    found = log({"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": [nested, inner]})
    assert [r.time for r in found] == [16.0, 11.0, 1.0]


def test_dynamo_request_traces():
    found = requests_of(SAMPLES / "dynamo_request_trace_v1.jsonl")
    assert [r.time for r in found] == [1740992400.0, 1740992404.2, 1740992431.0, 1740992475.5]
    assert [r.session for r in found] == ["s-alder", "s-alder", "s-birch", "s-alder"]
    assert found[1].latency == Latency(total=0.66)
    assert found[1].usage == Usage(prompt=268, completion=19)
    assert sum(found[0].content.sizes) == 212
    assert found[0].content.hashes[:3] == [401, 402, 403]


@pytest.mark.parametrize(
    ("file", "ids", "hashes"),
    [
        ("dynamo-standard.jsonl", ["standard-1", "standard-2"], [[401], [402]]),
        (
            "dynamo-agentic.jsonl",
            ["parent-source", "child-first", "child-last", "parent-consumer"],
            [[501], [502], [503], [504]],
        ),
        (
            "agentic-mooncake.jsonl",
            ["agent-root", "agent-child", "agent-join"],
            [["agent-play:301"], ["agent-play:302"], ["agent-play:303"]],
        ),
    ],
)
def test_dynamo_fixtures_of_its_own(file, ids, hashes):
    found = requests_of(DYNAMO / file)
    assert [r.id for r in found] == ids
    assert [list(r.content.hashes) for r in found] == hashes
    assert {r.content.block_size for r in found} == {4}
    assert {r.format for r in found} == {"dynamo"}


def test_lmcache_lookups_never_match_their_tail():
    found = requests_of(SAMPLES / "lmcache_lookup_hashes.jsonl")
    assert [list(r.content.sizes) for r in found] == [[256, 256, 88], [256] * 3 + [132], [256, 44]]
    assert found[0].content.hashes[:2] == ["0xaa01", "0xaa02"]
    assert len({r.content.hashes[-1] for r in found}) == 3
    assert [r.id for r in found] == ["r1", "r2", "r3"]
    assert found[1].time == 1740992404.2
    assert found[0].model == "Qwen/Qwen2.5-7B-Instruct"


@pytest.mark.parametrize(
    "row",
    [
        {"chat_id": 1, "parent_chat_id": -1, "hash_ids": "abc", "input_length": 3},
        {"chat_id": 1, "parent_chat_id": -1, "hash_ids": [1, 2, 3], "input_length": 3},
        {"chunk_hashes": [None], "seq_len": 10, "chunk_size": 4},
        {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": {"replay": None}},
        {"hash_id_scope": "local", "requests": [{"hash_ids": {}, "in": "x"}]},
    ],
)
def test_broken_hashes_are_named(log, row):
    good = {"chat_id": 1, "parent_chat_id": -1, "hash_ids": [1], "input_length": 3}
    found = log(good, row)
    assert isinstance(found[0], Request)
    assert [type(one) for one in found[1:]] == [Skip]
    assert (found[1].line, found[1].slug) == (2, "bad-hashes")


# --- texts, usage, lengths ---


def test_lmcache_agent_answers_are_kept(log):
    found = requests_of(SAMPLES / "lmcache_agent_trace.jsonl")
    assert found[0].output is None
    assert found[3].output.text == "Held under your card until Thursday noon."
    (one,) = log({"timestamp": 1760587801647311, "input": "", "output": "", "session_id": "s"})
    assert one.content == Text("")
    assert one.time == pytest.approx(1760587801.647311)


def test_baseten_parquet():
    pytest.importorskip("pyarrow")
    found = requests_of(SAMPLES / "baseten_trace.parquet")
    assert [r.content for r in found] == [Text(f"Desk note {n}") for n in range(3)]
    assert [r.time for r in found] == [1740992400.0, 1740992401.0, 1740992402.0]
    assert found[0].usage == Usage(prompt=5, completion=3)
    assert {r.session for r in found} == {"s"}


def test_tracelab_rounds_give_usage_without_prompts():
    found = requests_of(SAMPLES / "tracelab_rounds.jsonl")
    assert {r.content for r in found} == {NoPrompt("usage-only")}
    assert [(r.usage.prompt, r.usage.cached, r.usage.completion) for r in found] == [
        (212, 0, 24),
        (268, 208, 19),
        (209, 160, 14),
        (301, 272, 12),
    ]
    assert [r.latency.total for r in found] == pytest.approx([0.84, 0.66, 0.55, 0.49], abs=1e-6)
    assert found[0].time == datetime(2025, 3, 3, 9, tzinfo=UTC).timestamp()
    assert found[2].session == "claude:s-birch"


def test_tracelab_rounds_agree_with_the_transcripts_they_were_derived_from():
    transcripts = [
        *requests_of(TRACELAB / "claude__trace.json.gz"),
        *requests_of(TRACELAB / "codex__trace.json.gz"),
    ]
    rounds = requests_of(TRACELAB / "derived__round_trace.jsonl.gz")
    assert len(rounds) == 19
    assert {r.usage.long for r in transcripts if r.format == "claude-code"} == {0}  # the rounds tell no lifetimes
    assert [replace(r.usage, long=None) for r in transcripts] == [r.usage for r in rounds]
    assert [r.time for r in transcripts] == pytest.approx([r.time for r in rounds], abs=0.01)
    assert [r.model for r in transcripts] == [r.model for r in rounds]
    assert {r.format for r in transcripts} == {"claude-code", "codex"}


def test_tracelab_rounds_written_over_several_lines_are_the_same_rounds():
    spread = requests_of(TRACELAB / "derived__round_trace.expanded.json.gz")
    rounds = requests_of(TRACELAB / "derived__round_trace.jsonl.gz")
    assert [(r.id, r.time, r.usage, r.latency, r.session) for r in spread] == [
        (r.id, r.time, r.usage, r.latency, r.session) for r in rounds
    ]


def test_objects_over_several_lines_are_found_again_and_damage_stays_local(tmp_path):
    good = json.dumps({"timestamp_start_unix_ms": 5, "prompt": "a\n{\n}"}, indent=1)
    path = tmp_path / "spread.txt"
    path.write_text(f"# rows\n== 1 ==\n{good}\n== 2 ==\n{{\n not json\n}}\n== 3 ==\n{good}\n{{\n cut", "utf-8")
    index = new_index()
    found = [one for one in read([str(path)], index=index) if isinstance(one, Request)]
    assert [(r.content, r.line) for r in found] == [(Text("a\n{\n}"), 3), (Text("a\n{\n}"), 12)]
    again = list(fetch([str(path)], [(str(path), 12, 0)], index=index))
    assert [(r.content, r.line) for r in again] == [(Text("a\n{\n}"), 12)]
    index.close()


def test_tracelab_counts_without_a_total_and_with_writes(log):
    row = {"prefix_tokens": 5, "newly_append_tokens": 7, "claude_cache_creation_input_tokens": 6, "round_id": "m"}
    (found,) = log(row)
    assert found.usage == Usage(prompt=12, cached=5, written=6)
    assert found.time is None


@pytest.mark.parametrize(
    "path",
    [
        SAMPLES / "azure_llm_trace_2023.csv",
        SAMPLES / "burstgpt.csv",
        DYNAMO / "applied-compute-agentic.jsonl",
    ],
    ids=lambda path: path.name,
)
def test_length_traces_are_refused_with_the_reason(path):
    with pytest.raises(LogRefusedError, match="nothing in it says which prompts share a prefix") as refused:
        list(read([str(path)]))
    assert refused.value.slug == "length-only-trace"
    assert "block hashes" in refused.value.hint


def test_length_traces_are_refused_once_a_file_beside_other_files(tmp_path):
    multimodal = tmp_path / "azure_mm.csv"
    multimodal.write_text(
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n" + "2024-05-10 00:00:00.009930+00:00,0,2162,5\n" * 50
    )
    found = list(read([str(multimodal), str(SAMPLES / "qwen_bailian_trace.jsonl")]))
    assert [type(one) for one in found] == [Skip] + [Request] * 4
    assert found[0].slug == "length-only-trace"


def test_compressed_traces_are_read_alike(tmp_path):
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress((SAMPLES / "weka_trace.json").read_bytes()))
    assert [r.content.sizes for r in requests_of(path)] == [
        r.content.sizes for r in requests_of(SAMPLES / "weka_trace.json")
    ]
