"""Triage and watch: where time goes, whether prefix work can help, limits, and what Prometheus and Grafana are given."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from prefixlint import schemas
from prefixlint.cli import main
from prefixlint.errors import ServerError
from prefixlint.reports import Look
from prefixlint.verify import alerts, metrics, triage, watch, watchtext
from prefixlint.verify.metrics import Histogram
from prefixlint.verify.targets import Counters
from prefixlint.verify.triage import Sample
from prefixlint.verify.watch import Limits
from prefixlint.verify.wire import Server

from .fakeserver import FakeServer, reply

FOLDER = Path(__file__).parent.parent / "fixtures" / "metrics"


def real(name: str) -> metrics.Metrics:
    return metrics.parse((FOLDER / f"{name}.txt").read_text())


def timed(mean: float, count: int = 100) -> Histogram:
    bounds = [mean / 2, mean * 2, math.inf]
    return Histogram(count, mean * count, tuple((bound, count * (bound > mean)) for bound in bounds))


def sample(
    ttft: float = 1.0, queue: float = 0.1, prefill: float = 0.8, *, hits: float = 200, queries: float = 100_000, **more
) -> Sample:
    parts = {"ttft": timed(ttft), "queue": timed(queue), "prefill": timed(prefill)}
    counters = Counters(prompt_tokens=queries, cached_tokens=hits, queries=queries, hits=hits, parts=parts, **more)
    return Sample("sglang", counters, 60.0)


def test_the_time_to_first_token_is_split_and_its_parts_add_up_as_means():
    found = sample(1.0, 0.25, 0.5)
    assert found.timing("other").mean == pytest.approx(0.25)
    assert sum(found.share(part) for part in triage.PARTS) == pytest.approx(1)
    assert found.timing("other").p95 is None  # percentiles of parts are not subtracted


def test_other_is_never_below_nothing_and_not_known_where_the_parts_are_more_than_the_whole():
    assert sample(1.0, 0.2, 0.82).timing("other").mean == 0
    assert sample(1.0, 0.5, 0.9).timing("other") is None
    assert sample(1.0, 0.5, 0.9).share("other") is None


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_real_scrapes_are_split(name):
    found = triage.between(None, real(name))
    assert found is not None
    assert found.seconds is None
    assert 0.9 < found.share("prefill") < 1
    assert sum(found.share(part) for part in triage.PARTS) == pytest.approx(1)
    assert triage.judge(found).helps == "yes"


def test_what_happened_between_two_scrapes():
    before = real("vllm")
    text = (FOLDER / "vllm.txt").read_text()
    text = re.sub(r"(prefix_cache_queries_total\{.*\}) 22793.0", r"\1 23793.0", text)
    text = re.sub(r"(prefix_cache_hits_total\{.*\}) 10944.0", r"\1 11694.0", text)
    found = triage.between(before, metrics.parse(text), 30.0)
    assert found is not None
    assert found.counters.hit_rate == pytest.approx(0.75)
    assert found.seconds == 30
    assert found.requests == 0


def test_a_server_that_was_started_again_is_judged_since_its_start():
    before = metrics.parse("sglang:prompt_tokens_total 500\nsglang:cached_tokens_total 400\n")
    after = metrics.parse("sglang:prompt_tokens_total 100\nsglang:cached_tokens_total 10\n")
    found = triage.between(before, after, 30.0)
    assert found is not None
    assert found.restarted
    assert found.seconds is None
    assert found.counters.hit_rate == pytest.approx(0.1)


def test_prefill_that_is_computed_can_be_saved():
    verdict = triage.judge(sample(1.0, 0.1, 0.8))
    assert verdict.helps == "yes"
    assert verdict.limit == pytest.approx(0.8)
    assert "prefill is 80 %" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("found", "helps", "word"),
    [
        (sample(1.0, 0.1, 0.2), "no", "neither queue nor prefill"),
        (sample(0.1, 0.01, 0.04, hits=95_000), "no", "95 % of the prompt tokens come from the cache already"),
        (sample(0.1, 0.01, 0.08, queries=3_000, hits=0), "no", "only 30 tokens to compute"),
        (sample(1.0, 0.8, 0.15, kv_usage=0.97, queue_length=9), "limited", "wait for memory"),
        (sample(1.0, 0.7, 0.25, preemptions=3), "limited", "wait for memory"),
        (sample(1.0, 0.7, 0.25, retractions=3), "limited", "wait for memory"),
        (sample(1.0, 0.95, 0.04), "limited", "others to generate"),
        (sample(1.0, 0.1, 0.8, evicted=60_000), "limited", "evicts much"),
        (sample(1.0, 0.1, 0.8, hits=95_000), "limited", "95 %"),
        (sample(1.0, 0.5, 0.45), "yes", "falls faster than prefill"),
    ],
)
def test_whether_prefix_work_can_help_has_a_reason(found, helps, word):
    verdict = triage.judge(found)
    assert verdict.helps == helps, verdict
    assert any(word in reason for reason in verdict.reasons), verdict


def test_a_cache_that_is_off_comes_first():
    verdict = triage.judge(sample(), caches=False)
    assert verdict.helps == "yes"
    assert "switch it on" in verdict.reasons[0]


def test_what_is_not_known_is_said():
    verdict = triage.judge(Sample("sglang", Counters(running=3)))
    assert verdict.helps == "unknown"
    assert "ttft, queue, prefill, other, hit rate" in verdict.reasons[0]
    idle = triage.judge(Sample("vllm", Counters(queries=0, hits=0, parts={"ttft": Histogram(0, 0.0, ())})))
    assert idle.helps == "unknown"
    assert "no request" in idle.reasons[0]


def limited(found: Sample, **limits: float) -> list[tuple[str, bool | None, bool]]:
    return [(one.name, one.holds, one.reported) for one in watch.judge(found, Limits(**limits))]


def test_limits_hold_or_break():
    found = sample(hits=60_000, kv_usage=0.5)
    assert limited(found) == []
    assert limited(found, hit_rate=0.6, kv=0.5) == [("fail-under", True, True), ("max-kv", True, True)]
    assert limited(found, hit_rate=0.61, kv=0.49) == [("fail-under", False, True), ("max-kv", False, True)]


def test_a_percentile_is_judged_by_its_bucket_where_that_is_all_there_is():
    lowest = Histogram(10, 0.5, ((0.1, 10), (math.inf, 10)))
    highest = Histogram(10, 500.0, ((0.1, 0), (math.inf, 10)))
    inside = Histogram(10, 5.0, ((0.1, 0), (1.0, 10), (math.inf, 10)))
    for histogram, limit, holds in (
        (lowest, 0.1, True), (lowest, 0.05, None), (highest, 0.1, False), (highest, 0.2, None), (inside, 0.96, True),
        (inside, 0.9, False),
    ):  # fmt: skip
        found = Sample("vllm", Counters(parts={"ttft": histogram}))
        assert limited(found, ttft=limit) == [("max-ttft", holds, True)], (histogram, limit)


def test_a_limit_is_not_broken_by_what_nobody_knows():
    nothing = Sample("llama.cpp", Counters())
    assert limited(nothing, hit_rate=0.5, ttft=1.0, kv=0.5) == [
        ("fail-under", None, False), ("max-ttft", None, False), ("max-kv", None, False),
    ]  # fmt: skip
    idle = Sample("vllm", Counters(queries=0, hits=0, kv_usage=0.0, parts={"ttft": Histogram(0, 0.0, ((1.0, 0),))}))
    assert limited(idle, hit_rate=0.5, ttft=1.0, kv=0.5) == [
        ("fail-under", None, True), ("max-ttft", None, True), ("max-kv", True, True),
    ]  # fmt: skip


def test_a_scrape_that_was_kept_is_read_again_with_its_moment():
    taken = watch.Scrape(metrics.parse("a_total 1\n"), 1234.5, "a_total 1\n")
    again = watch.read(watch.kept(taken))
    assert again.at == 1234.5
    assert again.metrics.total("a_total") == 1
    assert watch.read("a_total 2\n").at is None
    assert watch.read("# prefixlint scrape at nonsense\na_total 2\n").at is None


class Engine(FakeServer):
    """A vLLM whose counters rise with each scrape; `fails` scrapes are answered with an error first."""

    def __init__(self, *, hits: int = 30, step: int = 100, fails: int = 0, usage: float = 0.4) -> None:
        self.scrapes = 0
        self._rises = (hits, step, usage)
        self.fails = fails
        super().__init__(self._scraped)

    def _scraped(self, _method: str, path: str, _body: bytes) -> bytes:
        if path != "/metrics":
            return reply(404)
        if self.scrapes and self.fails:
            self.fails -= 1
            return reply(500)
        self.scrapes += 1
        hits, step, usage = self._rises
        n = self.scrapes
        lines = [f"vllm:prefix_cache_queries_total {step * n}", f"vllm:prefix_cache_hits_total {hits * n}"]
        lines += [f"vllm:kv_cache_usage_perc {usage}", f"vllm:num_requests_waiting {n}"]
        for name in ("time_to_first_token", "request_queue_time", "request_prefill_time"):
            scale = {"time_to_first_token": 1.0, "request_queue_time": 0.25, "request_prefill_time": 0.5}[name]
            lines += [f"vllm:{name}_seconds_sum {scale * n}", f"vllm:{name}_seconds_count {2 * n}"]
            lines += [f'vllm:{name}_seconds_bucket{{le="0.2"}} 0']
            lines += [f'vllm:{name}_seconds_bucket{{le="{b}"}} {2 * n}' for b in ("1", "+Inf")]
        return reply(200, ("\n".join(lines) + "\n").encode(), kind="text/plain; version=0.0.4")


def run(*arguments: str, **options: object):
    return CliRunner().invoke(main, ["watch", *arguments], **options)


def test_rows_over_time_and_the_verdict_at_the_end():
    with Engine() as server:
        result = run(server.url, "--count", "3", "--interval", "0.05")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["time", "requests", "hit", "rate", "TTFT", "queue", "prefill", "other", "KV", "waiting"]
    for line in lines[1:4]:
        assert line.split()[1:] == [
            "2", "30.0", "%", "500", "ms", "125", "ms", "250", "ms", "125", "ms", "40", "%", line.split()[-1]
        ]  # fmt: skip
    assert [line.split()[-1] for line in lines[1:4]] == ["2", "3", "4"]
    assert "Prefix work can help: up to 50 % of the time to first token is prefill." in result.output
    assert max(map(len, lines)) <= 80


def test_limits_give_the_exit_code_and_say_what_broke():
    with Engine() as server:
        result = run(
            server.url, "--count", "2", "--interval", "0.05", "--fail-under", "50", "--max-kv", "90", "--max-ttft", "2s"
        )
        assert result.exit_code == 1
        assert result.output.count("--fail-under: the hit rate is 30.0 %") == 2
        assert "--max-kv" not in result.output
        kept = run(
            server.url, "--once", "--interval", "0.05", "--fail-under", "30", "--max-ttft", "1000ms", "--max-kv", "40%"
        )
        assert kept.exit_code == 0
        assert "--fail-under: kept" in kept.output
        assert "--max-ttft: kept" in kept.output
        broken = run(server.url, "--once", "--interval", "0.05", "--max-kv", "39")
    assert broken.exit_code == 1
    assert "--max-kv: broken, 40.0 % of the KV pool is in use" in broken.output


def test_a_limit_that_could_never_break_is_an_error():
    with FakeServer(lambda *_: reply(200, b"llamacpp:prompt_tokens_total 3\n", kind="text/plain")) as server:
        result = run(server.url, "--once", "--interval", "0.05", "--max-ttft", "1s")
    assert result.exit_code == 2
    assert "not-reported" in result.output


def test_json_of_a_whole_watch_and_a_line_for_each_interval():
    with Engine() as server:
        whole = run(server.url, "--count", "2", "--interval", "0.05", "--format", "json", "--fail-under", "20")
        lines = run(server.url, "--count", "2", "--interval", "0.05", "--format", "jsonl")
        url = server.url
    data = json.loads(whole.output)
    jsonschema.validate(data, schemas.load("watch"))
    assert whole.exit_code == 0
    assert data["schema"] == "prefixlint.watch/1"
    assert (data["server"], data["kind"], len(data["samples"])) == (url, "vllm", 2)
    first = data["samples"][0]
    assert first["hit_rate"] == pytest.approx(0.3)
    assert first["ttft_ms"]["mean"] == 500
    assert first["shares"] == {"queue": 0.25, "prefill": 0.5, "other": 0.25}
    assert first["evicted_tokens"] is None
    assert first["limits"] == [{"name": "fail-under", "holds": True, "why": "the hit rate is 30.0 %"}]
    assert data["whole"]["requests"] == 4
    shown = watchtext.saved_text(data, Look(80, color=False, verbose=False)).splitlines()
    assert shown[0] == watchtext.heads()
    assert [line.split()[1:5] for line in shown[1:3]] == [["s", "2", "30.0", "%"]] * 2
    assert "Hit rate  30.0 %" in "\n".join(shown[3:])
    assert data["prefix_work"]["helps"] == "yes"
    rows = [json.loads(line) for line in lines.output.splitlines()]
    assert [row["hit_rate"] for row in rows] == [pytest.approx(0.3)] * 2
    assert {row["schema"] for row in rows} == {"prefixlint.watch/1"}


def test_a_server_that_misses_a_scrape_is_asked_again_and_one_that_is_gone_is_not():
    with Engine(fails=2) as server:
        result = run(server.url, "--count", "1", "--interval", "0.05", "--format", "json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.output)["samples"][0]["seconds"] > 0.1  # it covers the intervals that were missed
    with Engine(fails=1000) as server:
        result = run(server.url, "--count", "1", "--interval", "0.05")
    assert result.exit_code == 2
    assert "no-metrics" in result.output


def test_the_state_of_the_last_time_is_kept_for_cron(tmp_path):
    state = tmp_path / "scrape.txt"
    with Engine() as server:
        first = run(server.url, "--state", str(state), "--format", "json")
        assert first.exit_code == 0, first.output
        assert json.loads(first.output)["whole"]["seconds"] is None  # since the server's start
        time.sleep(0.01)
        second = run(server.url, "--state", str(state), "--format", "json", "--fail-under", "31")
    assert second.exit_code == 1
    found = json.loads(second.output)["whole"]
    assert 0 < found["seconds"] < 30
    assert found["requests"] == 2
    assert watch.read(state.read_text()).metrics.total("vllm:prefix_cache_queries_total") == 200


def test_two_saved_scrapes_and_one(tmp_path):
    before, after = tmp_path / "before.txt", tmp_path / "after.txt"
    before.write_text("sglang:prompt_tokens_total 100\nsglang:cached_tokens_total 0\n")
    after.write_text("sglang:prompt_tokens_total 300\nsglang:cached_tokens_total 150\n")
    both = run(str(before), str(after), "--format", "json")
    jsonschema.validate(json.loads(both.output), schemas.load("watch"))
    assert json.loads(both.output)["whole"]["hit_rate"] == pytest.approx(0.75)
    alone = run(str(after), "--format", "json", "--fail-under", "60")
    assert json.loads(alone.output)["whole"]["hit_rate"] == pytest.approx(0.5)
    assert alone.exit_code == 1
    piped = run("-", "--format", "json", input=after.read_text())
    assert json.loads(piped.output)["whole"]["hit_rate"] == pytest.approx(0.5)
    swapped = run(str(after), str(before))
    assert "started again" in swapped.output


@pytest.mark.parametrize(
    ("arguments", "code", "slug"),
    [
        ([], 3, "no-input"), (["nowhere.txt"], 3, "no-input"), (["."], 3, "no-input"), (["a", "b", "c"], 2, "bad-files"),
        (["http://127.0.0.1:1", "http://127.0.0.1:2"], 2, "bad-url"), (["http://"], 2, "bad-url"),
        (["http://127.0.0.1:1", "--fail-under", "x"], 2, "bad-percent"), (["http://127.0.0.1:1", "--max-kv", "101"], 2, "bad-percent"),
        (["http://127.0.0.1:1", "--max-ttft", "soon"], 2, "bad-time-span"), (["http://127.0.0.1:1", "--max-ttft", "0"], 2, "bad-time-span"),
        (["http://127.0.0.1:1", "-o", "x.txt"], 2, "bad-output"), (["http://127.0.0.1:1", "--token-env", "NOT_SET_HERE"], 2, "bad-token"),
    ],
)  # fmt: skip
def test_what_cannot_be_watched(arguments, code, slug, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.exit_code, f"[{slug}]" in result.output) == (code, True), result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "slug"),
    [
        (reply(404), "no-metrics"), (reply(200, b"<html>", kind="text/html"), "no-metrics"), (reply(401), "server-denied"),
        (reply(200, b"node_cpu_seconds_total 3\n"), "unknown-metrics"), (reply(200, b"\x00\xff"), "unknown-metrics"),
        (b"SSH-2.0\r\n", "not-an-inference-server"),
    ],
)  # fmt: skip
def test_servers_without_metrics_of_an_engine(answer, slug):
    with FakeServer(lambda *_: answer) as server:
        result = run(server.url, "--count", "1", "--interval", "0.05", "--timeout", "2")
    assert result.exit_code == 2
    assert f"[{slug}]" in result.output


def test_the_token_comes_from_the_environment_and_stays_there():
    with Engine() as server:
        env = {"PREFIXLINT_TOKEN": "sk-hidden-1", "OTHER": "sk-hidden-2"}
        result = run(server.url, "--once", "--interval", "0.05", "--format", "json", env=env)
        assert "Authorization: Bearer sk-hidden-1" in server.requests[0][2]
        run(server.url, "--once", "--interval", "0.05", "--token-env", "OTHER", env=env)
        assert "Authorization: Bearer sk-hidden-2" in server.requests[-1][2]
    assert "sk-hidden" not in result.output


def test_a_watch_ends_with_a_signal_and_still_judges(tmp_path):
    import os
    import signal
    import subprocess
    import sys

    with Engine() as server:
        command = [sys.executable, "-m", "prefixlint", "watch", server.url, "--interval", "0.1", "--fail-under", "90"]
        for number in (signal.SIGINT, signal.SIGTERM):
            seen = server.scrapes
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                while server.scrapes < seen + 4:
                    time.sleep(0.01)
                os.kill(process.pid, number)
                out, err = process.communicate(timeout=30)
            assert process.returncode == 1, (out, err)
            assert "Prefix work can help" in out
            assert err == ""


def test_a_broken_row_is_red_and_unknown_values_are_dashes():
    found = Sample("llama.cpp", Counters(queries=10, hits=1, prompt_tokens=10))
    judged = watch.judge(found, Limits(hit_rate=0.5))
    shown = watchtext.row(found, "12:00:00", judged, Look(color=True))
    assert "\x1b[31m" in shown
    plain = watchtext.row(found, "12:00:00", judged, Look())
    assert plain.splitlines()[0].split() == ["12:00:00", "-", "10.0", "%", *"------"]


def test_strangers_text_is_inert():
    shown = watchtext.triage("http://x/\x1b[2J", sample(), triage.judge(sample()), [], Look())
    assert "\x1b" not in shown


def exported() -> dict[str, set[str]]:
    """Every name and label that the real servers export, and those that they export once something has happened."""
    later = {"sglang:num_retracted_requests_total"}  # SGLang 0.5.23, observability/metrics_collector.py
    names = {
        name: {label for own, _ in scrape.items(name) for label in own}
        for scrape in map(real, ("sglang", "vllm"))
        for name in scrape.samples
    }
    return names | {name: {"model_name"} for name in later}


METRIC = re.compile(r"\b(?:sglang|vllm):[a-z_]+\b(?!:)")


def queries(text: str) -> list[str]:
    found = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            found.extend([value["expr"]] if "expr" in value else [])
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(yaml.safe_load(text))
    return found


@pytest.mark.parametrize("made", ["--prometheus", "--grafana"])
@pytest.mark.parametrize("engine", [None, "sglang", "vllm"])
def test_rules_and_dashboards_use_names_that_the_servers_have(made, engine):
    result = run(made, *(["--engine", engine] if engine else []))
    assert result.exit_code == 0
    found = queries(result.output)
    assert len(found) >= (7 if engine else 14)
    names = exported()
    for query in found:
        used = [name for name in METRIC.findall(query) if not query.startswith(f"{name}:")]
        used = [name for name in used if f"{name}:" not in query]
        assert set(used) <= names.keys(), (query, set(used) - names.keys())
        assert query.count("(") == query.count(")")
        assert query.count("[") == query.count("]")
        if "stage=" in query:
            assert 'stage="prefill_forward"' in query
            assert "stage" in names["sglang:per_stage_req_latency_seconds_sum"]
        assert "cache_hit_rate" not in query  # the gauge of one batch
        assert all(engine is None or name.startswith(engine) for name in used)


def test_rules_hold_the_limits_that_were_given():
    text = run("--prometheus", "--fail-under", "72", "--max-ttft", "350ms", "--max-kv", "85").output
    groups = yaml.safe_load(text)["groups"]
    assert [group["name"] for group in groups] == ["prefixlint-sglang", "prefixlint-vllm"]
    by_name = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    assert by_name["vLLMPrefixHitRateLow"]["expr"].endswith("< 0.72")
    assert by_name["SGLangTimeToFirstTokenHigh"]["expr"].endswith("> 0.35")
    assert by_name["SGLangKVPoolFull"]["expr"].endswith("> 0.85")
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    for rule in by_name.values():
        assert rule["for"]
        assert rule["annotations"]["summary"]
        assert set(re.findall(r"\w+:prefix_hit_rate:\w+", rule["expr"])) <= recorded


def test_a_dashboard_has_its_panels_side_by_side_and_a_source_that_is_asked_for(tmp_path):
    target = tmp_path / "board.json"
    assert run("--grafana", "-o", str(target), "--max-ttft", "2s").exit_code == 0
    board = json.loads(target.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert {t["datasource"]["uid"] for p in board["panels"] for t in p.get("targets", [])} == {"${datasource}"}
    assert board["templating"]["list"][0]["query"] == "prometheus"
    steps = [
        p["fieldConfig"]["defaults"]["thresholds"]["steps"]
        for p in board["panels"]
        if p["title"] == "Time to first token"
    ]
    assert all(s[-1]["value"] == 2 for s in steps)


def test_both_engines_are_described_alike():
    assert [names.engine for names in alerts.ENGINES] == ["sglang", "vllm"]


def test_watching_stops_with_an_error_for_metrics_of_something_else():
    with FakeServer(lambda *_: reply(200, b"up 1\n")) as server, Server(server.url) as client:
        first = watch.scrape(client, time.time)
        with pytest.raises(ServerError):
            next(watch.watch(client, 0.01, 1, first))
    assert threading.active_count() < 20


def test_a_replay_on_a_server_that_others_use_says_first_how_it_does_now(tmp_path):
    from .fakeengine import FakeEngine
    from .toy import write_log

    log = write_log(tmp_path / "log.jsonl", [{"model": "m", "messages": [{"role": "user", "content": "a b c"}]}] * 2)
    with FakeEngine() as engine:
        arguments = ["verify", str(log), "--url", engine.url, "--format", "json"]
        fresh = CliRunner().invoke(main, arguments)
        used = CliRunner().invoke(main, arguments)
        rate = engine.cached_tokens / engine.prompt_tokens
    assert "before the replay" not in fresh.stderr  # nothing was asked for before
    assert "before the replay, since the server's start: hit rate" in used.stderr
    assert "Prefix work can help" in used.stderr
    assert 0 < rate < 1


def test_the_sentence_says_what_is_not_known():
    unknown = Sample("sglang", Counters(queries=10, hits=5, prompt_tokens=10))
    said = watchtext.sentence(unknown, triage.judge(unknown))
    assert said.startswith("since the server's start: hit rate 50.0 %.")
    cannot = watchtext.sentence(sample(1.0, 0.1, 0.2), triage.judge(sample(1.0, 0.1, 0.2)))
    assert "queue 10 %, prefill 20 %, other 70 %" in cannot
    assert "Prefix work cannot help here: 70 % of the time to first token is neither" in cannot
