"""A rewrite that stumbles costs what it is about, and no more."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import planting

from prefixlint import pipeline
from prefixlint.whatif.moved_value import _Moved


def fixed(path, out):
    with out.open("wb") as file:
        result = pipeline.analyze([str(path)], watch=pipeline.Watch(on_fixed=file.write))
    return result, [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_a_fault_of_a_rewrite_costs_gains_and_nothing_else(tmp_path, monkeypatch):
    path = planting.Planted(8, ("PFX101",), 60).write(tmp_path / "log.jsonl")

    def broken(*_, **__):
        raise RuntimeError("x")

    with monkeypatch.context() as patch:
        patch.setattr("prefixlint.whatif.moved_value.learn", broken)
        result = pipeline.analyze([str(path)])
        assert result.findings
        assert [one.reason for one in result.not_tried] == ["a rewrite has a fault (RuntimeError)"]
    monkeypatch.setattr("prefixlint.gains.accounts.still_lost", broken)
    result = pipeline.analyze([str(path)])
    assert result.what_if == ()
    assert result.findings
    assert any(note.slug == "what-if-fault" for note in result.notes)
    with pytest.raises(RuntimeError):
        fixed(path, tmp_path / "out.jsonl")


def test_a_request_over_which_a_rewrite_stumbles_stays_as_logged(tmp_path, monkeypatch):
    path = planting.Planted(8, ("PFX101",), 60).write(tmp_path / "log.jsonl")
    apply = _Moved.apply

    def broken(self, turn):
        if turn.view.row == 21:
            raise RuntimeError("x")
        apply(self, turn)

    monkeypatch.setattr(_Moved, "apply", broken)
    result, rewritten = fixed(path, tmp_path / "out.jsonl")
    logged = [json.loads(line) for line in path.read_text().splitlines()]
    same = [row for row, (one, two) in enumerate(zip(logged, rewritten, strict=True)) if one == two]
    assert 21 in same
    assert len(same) < 40
    told = next(note.message for note in result.notes if note.slug == "what-if-unchanged")
    assert told == f"1 request with a cause stayed as logged: a rewrite has a fault (RuntimeError at {path}:22)"


@pytest.mark.parametrize("odd", [7, "x", {"a": 1}, [7], [{"function": 7}]])
def test_tools_of_odd_types_are_left_as_they_are(tmp_path, odd):
    bodies = planting.Planted(8, ("PFX104+PFX306",), 40, clean=0).bodies()
    for body in bodies[10::9]:
        body["tools"] = odd
    path = tmp_path / "log.jsonl"
    planting.replayed(path, bodies)
    result, rewritten = fixed(path, tmp_path / "out.jsonl")
    assert not [note for note in result.notes if "fault" in note.message]
    assert [body["tools"] for body in rewritten[10::9]] == [odd] * len(bodies[10::9])
