"""Hit rate over the log: stretches that add up, the request at which it dropped, and what changed there."""

import json
import random

from click.testing import CliRunner

from prefixlint.cli import main

RULES = "Weigh each crate, note the road it takes, and never guess. " * 20
OTHER = "You write small poems about harbours, in four lines and without a rhyme. " * 20


def chat(system, question, **more):
    return {
        "model": "m",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        **more,
    }


def logged(n, body, **more):
    return {"timestamp": f"2026-03-01T{8 + n // 120:02}:{n // 2 % 60:02}:{30 * (n % 2):02}Z", "request": body, **more}


def analyze(tmp_path, rows, *options):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    done = CliRunner().invoke(main, ["analyze", str(path), *map(str, options)])
    assert done.exit_code == 0, done.output
    return done.stdout


def found(tmp_path, rows, *options):
    return json.loads(analyze(tmp_path, rows, "--format", "json", *options))


def clock(n):
    return f"It is 2026-03-01 {n // 60 % 24:02}:{n % 60:02}:17. "


def drop(at, count):
    return [logged(n, chat((clock(n) if n >= at else "") + RULES, f"how heavy is {n * 7919}?")) for n in range(count)]


def test_buckets_add_up(tmp_path):
    result = found(tmp_path, drop(60, 100))
    for engine in result["engines"]:
        for key in ("prompt_tokens", "cached_tokens"):
            assert sum(bucket["engines"][engine["engine"]][key] for bucket in result["timeline"]) == engine[key]
    assert sum(bucket["requests"] for bucket in result["timeline"]) == 100
    assert result["timeline"][0]["from"] == "2026-03-01T08:00:00.000Z"


def test_a_cause_that_began(tmp_path):
    result = found(tmp_path, drop(200, 320))
    (change,) = result["changes"]
    assert change["series"] == "sglang"
    assert change["at"]["line"] == 201
    assert change["before"] > 0.9 > 0.2 > change["after"]
    reason = change["reasons"][0]
    assert (reason["kind"], reason["rule"]) == ("cause", "PFX101")
    assert reason["first"]["line"] in (201, 202)
    assert reason["points"] < -0.7


def test_the_text_draws_it_and_names_the_request(tmp_path):
    out = analyze(tmp_path, drop(200, 320))
    assert "Hit rate over the log" in out
    assert "█" in out
    assert "at line 201, 2026-03-01" in " ".join(out.split())
    assert "it began" in " ".join(out.split())


def test_a_cause_that_ended(tmp_path):
    rows = [logged(n, chat((clock(n) if n < 150 else "") + RULES, f"how heavy is {n * 7919}?")) for n in range(300)]
    (change,) = found(tmp_path, rows)["changes"]
    assert abs(change["at"]["line"] - 151) <= 1
    assert change["after"] > change["before"]
    assert change["reasons"][0]["kind"] == "cause"
    reason = change["reasons"][0]
    assert "it ended" in reason["message"]
    assert reason["first"] is None
    assert reason["last"]["line"] in (150, 151)
    assert f"it ended (last: line {reason['last']['line']}, " in " ".join(analyze(tmp_path, rows).split())


def test_a_cause_that_is_as_frequent_and_costs_less_is_not_called_rarer(tmp_path):
    """Of a list of tools in any order, a cache holds more and more orders."""
    draw, names = random.Random(5), ["weigh", "look", "book", "pack", "send"]
    rows = []
    for n in range(160):
        order = names if n < 60 else draw.sample(names, 5)
        tools = [{"type": "function", "function": {"name": name, "description": OTHER}} for name in order]
        rows.append(logged(n, chat(RULES, f"how heavy is {n * 7919}?", tools=tools)))
    told = [(c["at"]["line"], r) for c in found(tmp_path, rows)["changes"] for r in c["reasons"] if r["rule"]]
    assert told[0][0] == 61
    assert "it began" in told[0][1]["message"]
    line, later = told[-1]
    assert line > 61
    assert later["message"].endswith("it cost less than before")
    assert later["first"] is later["last"] is None


def test_what_cannot_be_counted_is_less_and_not_fewer(tmp_path):
    poems = [logged(n, chat(f"Poem {n * 7919}: " + OTHER[n:] * 3, "go")) for n in range(100)]
    out = analyze(tmp_path, poems + [logged(n, chat(RULES, f"how heavy is {n}?")) for n in range(100, 250)])
    assert "less text that no earlier request had" in " ".join(out.split())


def test_another_mix_of_families(tmp_path):
    fresh = [f"poem {n} " + " ".join(str(n * 7919 + i) for i in range(150)) for n in range(300)]
    rows = [
        logged(n, chat(RULES, f"how heavy is {n}?") if n < 150 or n % 4 == 0 else chat(OTHER, fresh[n]))
        for n in range(300)
    ]
    (change,) = found(tmp_path, rows)["changes"]
    reason = change["reasons"][0]
    assert reason["kind"] == "families"
    assert "the mix of families" in reason["message"]
    assert abs(reason["first"]["line"] - 152) <= 1


def test_eviction(tmp_path):
    heads = [f"Branch {k}. " + RULES for k in range(40)]
    rows = [logged(n, chat(heads[n % 2 if n < 200 else n % 40], "how heavy?")) for n in range(400)]
    result = found(tmp_path, rows, "--capacity", "3000", "--engine", "vllm")
    (change,) = result["changes"]
    assert abs(change["at"]["line"] - 201) <= 2
    assert change["reasons"][0]["kind"] == "eviction"


def test_what_the_server_reported_dropped_alone(tmp_path):
    rows = [
        logged(
            n,
            chat(RULES, f"how heavy is {n}?"),
            response={
                "usage": {
                    "prompt_tokens": 300,
                    "completion_tokens": 1,
                    "prompt_tokens_details": {"cached_tokens": 280 if n < 150 else 20},
                }
            },
        )
        for n in range(300)
    ]
    changes = found(tmp_path, rows)["changes"]
    assert [c["series"] for c in changes] == ["reported"]
    assert changes[0]["reasons"][0]["kind"] == "server"


def test_a_log_of_counters_alone(tmp_path):
    rows = [
        {
            "id": f"r{n}",
            "created": 1772355600 + 60 * n,
            "model": "m",
            "usage": {
                "prompt_tokens": 1000,
                "completion_tokens": 1,
                "total_tokens": 1001,
                "prompt_tokens_details": {"cached_tokens": 900 if n < 100 else 100},
            },
        }
        for n in range(200)
    ]
    result = found(tmp_path, rows)
    assert [change["series"] for change in result["changes"]] == ["reported"]
    assert result["changes"][0]["at"]["line"] == 101
    assert "no prompts" in result["changes"][0]["reasons"][0]["message"]


def test_a_steady_log_has_no_changes(tmp_path):
    result = found(tmp_path, drop(400, 150))
    assert result["changes"] == []


def test_short_and_untimed_logs(tmp_path):
    assert len(found(tmp_path, [chat(RULES, "one")])["timeline"]) == 1
    rows = [chat(RULES, f"q {n}") for n in range(30)]
    buckets = found(tmp_path, rows)["timeline"]
    assert buckets[0]["from"] is None
    assert sum(bucket["requests"] for bucket in buckets) == 30
    assert "Hit rate over the log" not in analyze(tmp_path, rows[:10])


def test_masks(tmp_path):
    assert "2026-03-01 " not in json.dumps(found(tmp_path, drop(200, 320), "--redact")["changes"])
