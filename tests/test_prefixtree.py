"""The prefix tree that reports show, beside trees that are counted prefix by prefix."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import engines, pipeline, prefixtree, simulate
from prefixlint.cli import main
from prefixlint.model import BlockHashes

SGLANG = engines.load("sglang")
TOKENS = st.lists(st.integers(0, 2), max_size=9)


def replayed(requests, rows=None):
    rows = range(len(requests)) if rows is None else rows
    arrivals = [
        simulate.Arrival(row, space, np.array(prompt, np.uint32), None if out is None else np.array(out, np.uint32))
        for row, (space, prompt, out) in zip(rows, requests, strict=True)
    ]
    return simulate.run(arrivals, [SGLANG])


def material(replay):
    return SimpleNamespace(replay=replay, rows=np.asarray(replay.rows))


def asked(requests):
    """Count how many prompts of a namespace begin with each prefix."""
    found = {}
    for space, prompt, _ in requests:
        for end in range(1, len(prompt) + 1):
            key = (space, *prompt[:end])
            found[key] = found.get(key, 0) + 1
    return found


REQUESTS = st.lists(st.tuples(st.sampled_from(["a", "b"]), TOKENS, st.none() | TOKENS), min_size=1, max_size=14).filter(
    lambda rows: any(prompt for _, prompt, _ in rows)
)


@given(REQUESTS, st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_atoms_are_what_prompts_ask_for(requests, random):
    rows = random.sample(range(3 * len(requests)), len(requests))
    replay = replayed(requests, rows)
    atoms = prefixtree._atoms(material(replay))
    counted = asked(requests)
    assert int((atoms.size * atoms.asks).sum()) == sum(counted.values())
    shared = int(replay.engines["sglang"].shared.sum())
    assert int((atoms.size * (atoms.asks - atoms.first)).sum()) == shared
    tops = atoms.parent < 0
    assert int(atoms.below[tops].sum()) == sum(counted.values())
    assert int(atoms.asks[tops].sum()) == sum(1 for _, prompt, _ in requests if prompt)
    assert int(atoms.new[tops].sum()) == sum(len(prompt) for _, prompt, _ in requests) - shared
    for place, start, size, asks in zip(
        *(c.tolist() for c in (atoms.place, atoms.start, atoms.size, atoms.asks)), strict=True
    ):
        space, prompt, output = requests[place]
        path = [*prompt, *(output or [])][: start + size]
        assert len(path) == start + size
        if start + size <= len(prompt):
            assert counted[space, *path] >= asks > 0
    assert (atoms.parent < np.arange(atoms.parent.size)).all()


@given(REQUESTS)
@settings(max_examples=150, deadline=None)
def test_nodes_add_up_whatever_is_summed_up(requests):
    replay = replayed(requests)
    atoms = prefixtree._atoms(material(replay))
    nodes = [node for node, _ in prefixtree._Chosen(atoms).nodes()]
    total = sum(len(prompt) for _, prompt, _ in requests)
    assert nodes[0].prompt_tokens == sum(node.own_tokens for node in nodes) == total
    assert sum(node.reused_tokens for node in nodes) == int(replay.engines["sglang"].shared.sum())
    for index, node in enumerate(nodes[1:], 1):
        assert node.parent < index
        assert node.requests <= nodes[node.parent].requests
        below = sum(child.prompt_tokens for child in nodes if child.parent == index)
        assert node.prompt_tokens == node.own_tokens + below


def test_without_outputs_every_prefix_has_its_count():
    requests = [("a", [1, 2, 3], None), ("a", [1, 2, 4, 4], None), ("a", [1, 2, 3], None), ("b", [1, 2], None)]
    atoms = prefixtree._atoms(material(replayed(requests)))
    found = sorted(zip(atoms.size.tolist(), atoms.asks.tolist(), strict=True))
    assert found == [(1, 2), (2, 1), (2, 1), (2, 3)]


def test_generated_tokens_are_found_again_from_the_first_time_on():
    requests = [("a", [1, 2], [3, 4, 5]), ("a", [1, 2, 3, 4, 9], None)]
    replay = replayed(requests)
    nodes = [node for node, _ in prefixtree._Chosen(prefixtree._atoms(material(replay))).nodes()]
    spoken = [(node.start, node.tokens, node.requests, node.own_tokens, node.reused_tokens) for node in nodes[1:]]
    assert spoken == [(0, 2, 2, 4, 2), (2, 2, 1, 2, 2), (4, 1, 1, 1, 0)] or spoken == [
        (0, 2, 2, 4, 2),
        (2, 3, 1, 3, 2),
    ]


def test_many_branches_share_a_node():
    requests = [("a", [1, 2, 3, 10 + n], None) for n in range(2_000)]
    nodes = [node for node, _ in prefixtree._Chosen(prefixtree._atoms(material(replayed(requests)))).nodes()]
    assert len(nodes) <= prefixtree._NODES + 2
    (rest,) = [node for node in nodes if node.branches]
    assert rest.branches + sum(node.requests == 1 for node in nodes) == 2_000
    assert rest.reused_tokens == 0


def test_a_hash_trace_is_a_tree_of_its_tokens():
    traced = [
        simulate.BlockArrival(n, "a", BlockHashes(tuple(hashes), (512,) * len(hashes), 512, prefixed=True))
        for n, hashes in enumerate([[1, 2, 3], [1, 2, 4], [1]])
    ]
    replay = simulate.run_blocks(traced, [engines.load("ideal")])
    tree = prefixtree.build(material(replay))
    assert [(n.start, n.tokens, n.requests, n.text) for n in tree.nodes[1:]] == [
        (0, 512, 3, None),
        (512, 512, 2, None),
        (1024, 512, 1, None),
        (1024, 512, 1, None),
    ]


def test_no_prompt_no_tree():
    assert prefixtree.build(material(replayed([("a", [], None)]))) is None
    assert prefixtree.build(SimpleNamespace(rows=np.zeros(0, int))) is None


SYSTEM = "You weigh crates and note their road. Never guess, whatever you are asked. " * 30


def body(n, who="Anna Berg, anna.berg@example.org"):
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": f"Talk to {who} {n}. {SYSTEM}"},
            {"role": "user", "content": f"how heavy is {n * 7919}?"},
        ],
    }


def analyzed(tmp_path, rows, *options):
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    done = CliRunner().invoke(main, ["analyze", str(log), "--format", "json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_tree_of_a_log(tmp_path):
    found = analyzed(tmp_path, [body(n) for n in range(12)])
    tree, engine = found["tree"], found["engines"][0]
    assert sum(node["reused_tokens"] for node in tree["nodes"]) == pytest.approx(engine["cached_tokens"], abs=12)
    assert tree["nodes"][0]["prompt_tokens"] == found["tokens"]["prompt"]
    assert any("Anna Berg" in (node["text"] or "") for node in tree["nodes"])
    assert max(len(node["text"] or "") for node in tree["nodes"]) < 2_000


def test_texts_are_masked_where_that_is_asked_for(tmp_path):
    found = analyzed(tmp_path, [body(n) for n in range(12)], "--redact")
    shown = json.dumps([found["tree"], [family["template"] for family in found["families"]]])
    assert "anna.berg@example.org" not in shown
    assert "<email:" in shown


def test_a_template_shows_its_places_in_the_text(tmp_path):
    found = analyzed(tmp_path, [body(n, f"Anna {'x' * (n % 3)}") for n in range(12)])
    (family,) = found["families"]
    pieces = family["template"]
    marked = [piece["span"] for piece in pieces if piece["span"] is not None]
    assert 0 in marked
    assert len(marked) == len(set(marked))
    text = "".join(piece["text"] for piece in pieces)
    assert "Talk to " in text
    assert SYSTEM[:60] in text
    assert sum(piece["left_out"] or 0 for piece in pieces) > 1_000


def test_a_template_ends_where_the_prompt_does(tmp_path):
    rows = [{"model": "m", "messages": [{"role": "user", "content": f"{n} short"}]} for n in range(5)]
    (family, *_) = analyzed(tmp_path, rows)["families"]
    assert all(piece["left_out"] is None for piece in family["template"])


def test_deep_conversations_are_not_walked_by_recursion():
    prompts = [list(range(n * 3)) for n in range(1, 1_500)]
    tree = prefixtree._Chosen(prefixtree._atoms(material(replayed([("a", p, None) for p in prompts])))).nodes()
    assert tree[0][0].prompt_tokens == sum(map(len, prompts))


def test_what_is_simulated_is_what_is_drawn():
    result = pipeline.analyze(["fixtures/logs/demo.jsonl"], pipeline.Options(engines=("vllm",), what_if=()))
    nodes = result.tree.nodes
    assert sum(node.own_tokens for node in nodes) == result.prompt_tokens


@pytest.mark.parametrize(
    ("options", "made"), [((), 0), (("--verbose",), 1), (("--format", "markdown"), 0), (("--format", "json"), 1)]
)
def test_the_tree_is_made_for_those_who_show_it(options, made, monkeypatch, tmp_path):
    built = []
    monkeypatch.setattr(prefixtree, "build", built.append)
    log = tmp_path / "log.jsonl"
    log.write_text('{"model": "m", "messages": [{"role": "user", "content": "hello"}]}\n')
    done = CliRunner().invoke(main, ["analyze", str(log), *options], catch_exceptions=False)
    assert (done.exit_code, len(built)) == (0, made)
