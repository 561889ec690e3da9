"""`prefixlint verify` against an engine without a model: what is measured, what is predicted, and why they differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint import runs
from prefixlint.cli import main

from .fakeengine import FakeEngine
from .toy import TEMPLATE, model_folder, write_log

SYSTEM = " ".join(f"s{n}" for n in range(60))


def conversation(name: str, turns: int, system: str = SYSTEM) -> list[dict]:
    """The bodies of a conversation, each with what was said before."""
    messages = [{"role": "system", "content": system}]
    bodies = []
    for turn in range(turns):
        messages = [*messages, {"role": "user", "content": f"{name} asks {turn} and more"}]
        bodies.append({"model": "m", "messages": messages})
        messages = [*messages, {"role": "assistant", "content": f"{name} answered {turn}"}]
    return bodies


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [*conversation("anna", 3), *conversation("ben", 2), *conversation("carl", 2, "another system prompt")]
    return write_log(tmp_path / "log.jsonl", rows)


def verify(*arguments: object) -> tuple[int, dict, str]:
    """Run the command with JSON; give exit code, result and what was said."""
    done = CliRunner().invoke(main, ["verify", *map(str, arguments), "--format", "json"], catch_exceptions=False)
    return done.exit_code, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("route", [[], ["--by-ids"]])
def test_each_request_is_measured_as_predicted(log, page, route):
    with FakeEngine(page=page) as engine:
        code, found, _ = verify(log, "--url", engine.url, *route)
    assert code == 0
    assert [run["cache"] for run in found["runs"]] == ["cold", "warm"]
    assert {run["isolation"] for run in found["runs"]} == {"salt"}
    prediction = found["prediction"]
    assert (prediction["cached_equal"], prediction["of"]) == (14, 14)
    assert (prediction["token_counts_equal"], prediction["counted"]) == (14, 14)
    assert prediction["block_size"] == page
    cold, warm = found["runs"]
    assert 0 < cold["hit_rate"] < warm["hit_rate"] < 1
    assert (cold["predicted_hit_rate"], warm["predicted_hit_rate"]) == (cold["hit_rate"], warm["hit_rate"])
    assert cold["server"]["hit_rate"] == pytest.approx(cold["hit_rate"])
    rows = found["residuals"]
    assert len(rows) == 14
    assert all(row["predicted"] == row["measured"] and row["reason"] is None for row in rows)
    assert [row["line"] for row in rows] == [*range(1, 8)] * 2
    assert found["agrees"] is True


def test_a_run_has_a_salt_of_its_own_and_never_flushes_a_server_of_others(log):
    with FakeEngine() as engine:
        verify(log, "--url", engine.url)
        first = {body["extra_key"] for body in engine.bodies}
        code, found, _ = verify(log, "--url", engine.url)
        second = {body["extra_key"] for body in engine.bodies} - first
        assert engine.flushed == 0
    assert code == 0
    assert found["runs"][0]["hit_rate"] < found["runs"][1]["hit_rate"]
    assert len(first) == len(second) == 2  # the warm-up, and the runs


def test_logged_salts_stay_apart_within_the_run(tmp_path):
    rows = [{**body, "cache_salt": salt} for salt in ("a", "b") for body in conversation("anna", 2)]
    log = write_log(tmp_path / "salted.jsonl", rows)
    with FakeEngine() as engine:
        code, found, _ = verify(log, "--url", engine.url)
    cold = [row["measured"] for row in found["residuals"][:4]]
    assert code == 0
    assert cold[0] == cold[2] == 0
    assert cold[1] == cold[3] > 0


def test_flush_empties_and_shows_that_the_cache_is_empty(log):
    with FakeEngine() as engine:
        code, found, _ = verify(log, "--url", engine.url, "--flush", "--rounds", 2)
        assert engine.flushed == 2
        assert not any("extra_key" in body for body in engine.bodies if len(body["messages"]) > 1)
    assert code == 0
    assert [run["isolation"] for run in found["runs"]] == ["flush"] * 4
    assert found["runs"][0]["hit_rate"] == found["runs"][2]["hit_rate"]


@pytest.mark.parametrize(("flushes", "said"), [("lies", "still serves"), ("no", "400")])
def test_a_flush_that_did_not_work_is_seen_and_a_salt_taken(log, flushes, said):
    with FakeEngine(flushes=flushes) as engine:
        code, found, _ = verify(log, "--url", engine.url, "--flush")
    assert code == 0
    assert found["runs"][0]["isolation"] == "salt"
    assert any(said in note["message"] for note in found["notes"] if note["slug"] == "not-flushed")


def test_a_server_without_namespaces_gets_a_marker_and_is_still_predicted(log):
    with FakeEngine(owner="vllm-like", kind="openai") as engine:
        engine.cache["None"] = [[1, 2, 3]]
        code, found, _ = verify(log, "--url", engine.url, "--engine", "openai")
        fronts = {body["messages"][0]["content"].split(" ")[0] for body in engine.bodies if len(body["messages"]) > 1}
    assert found["runs"][0]["isolation"] == "marker"
    assert len(fronts) == 1
    assert found["runs"][0]["hit_rate"] < found["runs"][1]["hit_rate"]
    assert found["prediction"] is None
    assert code == 0


def test_unknown_cached_tokens_are_unknown_and_not_zero(log):
    with FakeEngine(reports=False) as engine:
        code, found, _ = verify(log, "--url", engine.url)
        shown = CliRunner().invoke(main, ["verify", str(log), "--url", engine.url], catch_exceptions=False)
    assert code == 0
    assert all(run["hit_rate"] is None and run["cached_tokens"] is None for run in found["runs"])
    assert all(row["measured"] is None for row in found["residuals"])
    assert any(
        note["slug"] == "cached-unknown" and "--enable-cache-report" in note["message"] for note in found["notes"]
    )
    assert found["engine"]["reports_cached"] is False
    assert "unknown" in shown.stdout
    assert "0.0 %" not in shown.stdout


def test_wrong_hits_are_a_disagreement_named_by_line(log):
    with FakeEngine(page=16) as engine:
        hit = engine._hit
        engine._hit = lambda key, ids: max(0, hit(key, ids) - 16)
        code, found, _ = verify(log, "--url", engine.url)
        shown = CliRunner().invoke(main, ["verify", str(log), "--url", engine.url], catch_exceptions=False)
    assert code == shown.exit_code == 1
    assert found["agrees"] is False
    apart = [row for row in found["residuals"] if row["reason"] is not None]
    assert apart
    assert all(row["predicted"] - row["measured"] == 16 and not row["explained"] for row in apart)
    assert found["prediction"]["max_error_tokens"] == 16
    assert found["prediction"]["unexplained"] == len(apart)
    assert "disagree" in shown.stdout.split("\n")[0]
    assert f"log.jsonl#{apart[0]['line']}" in shown.stdout


def test_tolerance_lets_small_differences_pass(log):
    with FakeEngine(page=16) as engine:
        hit = engine._hit
        engine._hit = lambda key, ids: max(0, hit(key, ids) - 3)
        assert verify(log, "--url", engine.url, "--tolerance", 2)[0] == 1
        assert verify(log, "--url", engine.url, "--tolerance", 3)[0] == 0


def test_another_chat_template_is_found_by_the_first_token_that_differs(tmp_path):
    words = "s0 s1 here we are now again"
    folder = model_folder(tmp_path / "model", words, TEMPLATE.replace("<end>", ""))
    log = write_log(tmp_path / "log.jsonl", [{"messages": [{"role": "user", "content": "here we are"}]}] * 2)
    with FakeEngine() as engine:
        code, found, _ = verify(log, "--url", engine.url, "--model", folder)
        shown = CliRunner().invoke(
            main, ["verify", str(log), "--url", engine.url, "--model", str(folder)], catch_exceptions=False
        )
    assert code == shown.exit_code == 1
    (one, *_others) = found["token_differences"]
    assert (one["token"], one["line"], one["counted"], one["measured"]) == (0, 1, 5, 6)
    assert one["our_text"] is None  # no text of a prompt goes into a result unless asked for
    assert "<user>" in shown.stdout


def test_texts_of_prompts_are_written_only_when_asked_for(tmp_path):
    secret = "confidential"
    folder = model_folder(tmp_path / "model", f"{secret} here")
    log = write_log(tmp_path / "log.jsonl", [{"messages": [{"role": "user", "content": f"{secret} here"}]}])
    with FakeEngine(shift=1) as engine:
        for form in ("json", "markdown", "html", "text"):
            out = tmp_path / f"out.{form}"
            arguments = ["verify", str(log), "--url", engine.url, "--model", str(folder), "--format", form]
            done = CliRunner().invoke(main, [*arguments, "-o", str(out)], catch_exceptions=False)
            assert done.exit_code == 1, done.output
            assert secret not in out.read_text()
        CliRunner().invoke(main, [*arguments, "-o", str(out), "--with-text"], catch_exceptions=False)
        assert secret in out.read_text()


def test_generated_tokens_are_predicted_as_the_engine_stores_them(tmp_path):
    first = {"messages": [{"role": "user", "content": "one two three"}]}
    answer = " ".join(f"word{n}" for n in range(5))
    then = {
        "messages": [*first["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": "x"}]
    }
    log = write_log(tmp_path / "log.jsonl", [first, then])
    with FakeEngine() as engine:
        _, short, _ = verify(log, "--url", engine.url)
        code, found, _ = verify(log, "--url", engine.url, "--max-tokens", 5, "--by-ids")
    assert code == 0
    assert found["prediction"]["cached_equal"] == 4
    assert found["runs"][0]["output_tokens"] == 10
    # the prompt ends with <|assistant|>, which the history has before the answer too: four of five words are stored
    assert found["residuals"][1]["measured"] == short["residuals"][1]["measured"] + 4


def test_logged_output_lengths_are_generated(tmp_path):
    rows = [
        {"request": body, "response": {"usage": {"prompt_tokens": 9, "completion_tokens": count}}}
        for body, count in zip(conversation("anna", 2), (7, 3), strict=True)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    with FakeEngine() as engine:
        code, found, _ = verify(log, "--url", engine.url, "--output-length", "logged")
        wanted = [body["max_tokens"] for body in engine.bodies]
    assert code == 0
    assert wanted == [1, 1, 7, 3, 7, 3]
    assert found["load"]["output"] == "logged"


def test_requests_at_once_differ_only_as_the_in_flight_rule_allows(tmp_path):
    rows = [
        {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"q{n}"}]} for n in range(24)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    with FakeEngine(seconds=0.4) as engine:
        code, found, _ = verify(log, "--url", engine.url, "--concurrency", 4)
    assert code == 0
    assert found["load"]["concurrency"] == 4
    apart = [row for row in found["residuals"] if row["predicted"] != row["measured"]]
    assert all(row["explained"] and row["reason"].startswith("in flight") for row in apart)
    cold = [row["measured"] for row in found["residuals"] if row["cache"] == "cold"]
    assert cold.count(0) > 1  # several of the first did not find what the others were computing


def test_the_log_that_cannot_be_sent_is_counted_and_named(tmp_path):
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    rows = [
        {"messages": []},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": image}]},
        {"messages": [{"role": "wizard", "content": "hi"}]},
        {"messages": [{"role": "user", "content": "word " * 500}]},
        {"messages": [{"role": "user", "content": "hello there"}]},
    ]
    log = write_log(tmp_path / "odd.jsonl", rows)
    with FakeEngine(context=100) as engine:
        code, found, _ = verify(log, "--url", engine.url, "--timeout", 5)
        shown = CliRunner().invoke(main, ["verify", str(log), "--url", engine.url], catch_exceptions=False)
    assert code == 0, shown.output
    left = {one["slug"]: one["requests"] for one in found["left"]}
    expected = {"unknown-format": 1, "empty-messages": 1, "not-text": 1, "unknown-role": 1, "longer-than-context": 1}
    assert left == expected
    assert found["load"]["requests"] == 1
    assert "longer than the server's context" in " ".join(shown.stdout.split())


def test_a_log_of_which_nothing_can_be_sent_is_refused(tmp_path):
    log = write_log(tmp_path / "odd.jsonl", [{"messages": [{"role": "wizard", "content": "hi"}]}])
    with FakeEngine() as engine:
        done = CliRunner().invoke(main, ["verify", str(log), "--url", engine.url])
    assert done.exit_code == 2
    assert "nothing to replay" in done.stderr
    assert "odd.jsonl, line 1" in done.stderr


def test_a_model_without_a_chat_template_is_named(tmp_path, log):
    folder = model_folder(tmp_path / "model", "a b c")
    (folder / "tokenizer_config.json").write_text("{}")
    with FakeEngine() as engine:
        done = CliRunner().invoke(main, ["verify", str(log), "--url", engine.url, "--model", str(folder)])
    assert done.exit_code == 2
    assert "no-chat-template" in done.stderr
    assert "--chat-template" in done.stderr


def test_the_token_is_sent_and_never_shown(log, monkeypatch):
    monkeypatch.setenv("PREFIXLINT_TOKEN", "very-secret")
    with FakeEngine() as engine:
        done = CliRunner().invoke(main, ["verify", str(log), "--url", engine.url, "--format", "json"])
        assert all("Bearer very-secret" in headers for _, _, headers, _ in engine.requests)
    assert done.exit_code == 0
    assert "very-secret" not in done.output


def test_a_saved_run_is_read_again_without_loss(log, tmp_path):
    out = tmp_path / "run.json"
    with FakeEngine(page=16) as engine:
        verify(log, "--url", engine.url, "-o", out)
    saved = json.loads(out.read_text())
    assert runs.as_json(runs.from_json(saved)) == saved
    for form in ("text", "markdown"):
        shown = CliRunner().invoke(main, ["report", str(out), "--format", form], catch_exceptions=False)
        assert shown.exit_code == 0
        assert "14 of 14 requests" in " ".join(shown.stdout.split())


def test_the_text_fits_eighty_columns_and_says_the_most_important_first(log, monkeypatch):
    monkeypatch.chdir(log.parent)
    with FakeEngine(seconds=0.01) as engine:
        done = CliRunner().invoke(main, ["verify", log.name, "--url", engine.url], catch_exceptions=False)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Prediction and measurement agree")
    assert max(map(len, lines)) <= 80
    for word in ("TTFT P50", "TTFT P95", "hit rate, measured", "hit rate, predicted", "The client itself took"):
        assert word in done.stdout


def test_what_the_client_takes_is_not_the_time_that_it_waits(log):
    with FakeEngine(seconds=0.05) as engine:
        _, found, _ = verify(log, "--url", engine.url)
    for run in found["runs"]:
        assert 0 < run["overhead_ms"]["p50"] < run["ttft_ms"]["p50"] / 4
