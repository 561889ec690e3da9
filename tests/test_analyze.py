"""`prefixlint analyze` from a log to its report, on logs small enough to be counted by hand."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint import pipeline
from prefixlint.cli import main
from prefixlint.model import MissCause
from tests.toy import TEMPLATE, model_folder, write_log

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "fixtures" / "logs" / "demo.jsonl"
WORDS = "a b c d e f g h i j k l m n o p q r s t u v w x y z now one two three four"


def run(*args, code=0, stdin=None):
    result = CliRunner().invoke(main, ["analyze", *map(str, args)], input=stdin, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def analyze(*args, **kwargs):
    return json.loads(run(*args, "--format", "json", **kwargs).stdout)


def engine(result, name):
    return next(e for e in result["engines"] if e["engine"] == name)


def body(*turns, system="a b c d", model="m", **more):
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"model": model, "messages": messages, **more}


@pytest.fixture
def model(tmp_path):
    return model_folder(tmp_path / "model", WORDS)


@pytest.fixture
def log(tmp_path):
    # <system> a b c d <end> <user> e f <end> <assistant>: 11 tokens; the second question begins with e, too
    rows = [
        {"timestamp": 100, "request": body("e f")},
        {"timestamp": 101, "request": body("e g h")},
        {"timestamp": 102, "request": body("e f", "x y", "z")},
    ]
    return write_log(tmp_path / "log.jsonl", rows)


def test_hits_are_right_to_the_token(log, model):
    result = analyze(log, "--model", model)
    sglang = engine(result, "sglang")
    # 11 + 12 + 18 tokens; the second shares 8 with the first, the third its whole 11 (and goes on)
    assert sglang["prompt_tokens"] == 11 + 12 + 18
    assert sglang["cached_tokens"] == 8 + 11
    assert sglang["zero_hit_requests"] == 1
    assert engine(result, "vllm")["cached_tokens"] == 0
    assert engine(analyze(log, "--model", model, "--block-size", "4"), "vllm")["cached_tokens"] == 8 + 8
    assert result["tokens"] == {"prompt": 41, "distinct": 41 - 19}


def test_a_repeated_prompt_computes_its_last_token(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [body("e f"), body("e f")])
    sglang = engine(analyze(log, "--model", model), "sglang")
    assert sglang["cached_tokens"] == 10
    assert sglang["misses"] == {"cold": 11, "unaligned": 1}


def test_a_generated_answer_is_reusable_when_the_log_has_it(tmp_path, model):
    answer = {"choices": [{"message": {"role": "assistant", "content": "x y"}, "finish_reason": "stop"}]}
    rows = [
        {"timestamp": 1, "request": body("e f"), "response": answer},
        {"timestamp": 2, "request": body("e f", "x y", "z")},
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    # the prompt's 11 tokens and the generated x y; the end of the turn was sampled but not computed
    assert engine(analyze(log, "--model", model), "sglang")["cached_tokens"] == 13


@pytest.mark.parametrize(("finish", "reusable"), [("stop", 13), ("length", 12), (None, 13)])
def test_the_last_token_of_an_output_cut_by_its_limit_was_not_computed(tmp_path, model, finish, reusable):
    answer = {"choices": [{"message": {"role": "assistant", "content": "x y"}, "finish_reason": finish}]}
    rows = [
        {"timestamp": 1, "request": body("e f"), "response": answer},
        {"timestamp": 2, "request": body("e f", "x y", "z")},
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    assert engine(analyze(log, "--model", model), "sglang")["cached_tokens"] == reusable


def test_token_ids_of_another_vocabulary_are_shown_as_ids(tmp_path):
    rows = [{"model": "m", "prompt": [7] * 200 + [i] + list(range(900, 1100))} for i in range(3)]
    result = analyze(write_log(tmp_path / "log.jsonl", rows))
    place = result["families"][0]["spans"][0]
    assert place["excerpt"]["before"].endswith("7 7 7 ")
    assert (place["excerpt"]["earlier"].split()[0], place["excerpt"]["later"].split()[0]) == ("0", "1")


def test_an_impossible_token_id_costs_one_request(tmp_path):
    rows = [{"prompt": [1, 2, 3]}, {"prompt": [1, 2**40]}, {"prompt": [1, 2, 4]}]
    result = analyze(write_log(tmp_path / "log.jsonl", rows))
    assert engine(result, "sglang")["prompt_tokens"] == 6


@pytest.mark.parametrize("order", ["reversed", "shuffled"])
def test_requests_are_used_in_time_order(log, model, tmp_path, order):
    lines = log.read_text().splitlines()
    lines = lines[::-1] if order == "reversed" else [lines[1], lines[2], lines[0]]
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(lines))
    expected, found = analyze(log, "--model", model), analyze(other, "--model", model)
    assert found["engines"] == expected["engines"]
    assert found["input"]["order"] == "time"
    slugs = [n["slug"] for n in found["notes"]]
    assert slugs == ["reversed-log" if order == "reversed" else "unsorted-log"]
    assert analyze(other, "--model", model, "--sort", "file")["engines"] != expected["engines"]


def test_without_all_times_the_file_order_counts_and_is_said(tmp_path, model):
    log = write_log(tmp_path / "log.jsonl", [{"timestamp": 5, "request": body("e")}, {"request": body("e")}])
    result = analyze(log, "--model", model)
    assert result["input"]["order"] == "file"
    assert "times-missing" in [n["slug"] for n in result["notes"]]


def usage(prompt, cached=None):
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": 1, **details}, "choices": []}


def test_counts_are_proven_only_where_all_equal_the_reported_ones(tmp_path, model):
    rows = [{"request": body("e f"), "response": usage(11)}, {"request": body("e g h"), "response": usage(12)}]
    proven = analyze(write_log(tmp_path / "a.jsonl", rows), "--model", model)["tokenizers"][0]
    assert (proven["exact"], proven["checked_against"], proven["equal"], proven["compared"]) == (
        "proven",
        "usage",
        2,
        2,
    )
    rows[1]["response"] = usage(13)
    wrong = analyze(write_log(tmp_path / "b.jsonl", rows), "--model", model)["tokenizers"][0]
    assert (wrong["exact"], wrong["equal"], wrong["factor"]) == ("no", 1, 1.0)
    plain = analyze(write_log(tmp_path / "c.jsonl", [body("e")]), "--model", model)["tokenizers"][0]
    assert (plain["exact"], plain["checked_against"]) == ("assumed", None)


def test_a_stand_in_is_scaled_to_the_reported_counts(tmp_path):
    rows = [
        {"request": body("e f"), "response": usage(1100, 0)},
        {"request": body("e f"), "response": usage(1100, 900)},
    ]
    result = analyze(write_log(tmp_path / "log.jsonl", rows))
    use = result["tokenizers"][0]
    assert use["exact"] == "no"
    assert use["factor"] > 1
    assert engine(result, "sglang")["prompt_tokens"] == 2200
    assert engine(result, "sglang")["cached_tokens"] == 1099
    assert engine(result, "vllm")["cached_tokens"] == 1088
    assert result["reported"] == {
        "requests": 2,
        "prompt_tokens": 2200,
        "cached_tokens": 900,
        "written_tokens": None,
        "hit_rate": 900 / 2200,
    }


def test_what_the_server_did_not_report_is_unknown_and_not_zero(tmp_path, model):
    rows = [{"request": body("e f"), "response": usage(11)}]
    result = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model)
    assert result["reported"] is None


def test_models_and_salts_do_not_share(tmp_path, model):
    rows = [body("e"), body("e", model="other"), body("e", cache_salt="s"), body("e", cache_salt="s")]
    result = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model)
    assert engine(result, "sglang")["zero_hit_requests"] == 3
    assert [t["model"] for t in result["tokenizers"]] == ["m", "other"]


def test_a_refused_conversation_is_counted_and_not_lost(tmp_path):
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
    model = model_folder(tmp_path / "model", WORDS, template)
    log = write_log(tmp_path / "log.jsonl", [body("e"), body("e", system=None), body("f", system=None)])
    result = analyze(log, "--model", model)
    assert result["input"]["requests"] == 3
    assert engine(result, "sglang")["requests"] == 2
    note = next(n for n in result["notes"] if n["slug"] == "refused-prompt")
    assert "no system role" in note["message"]


def test_groups_add_up(tmp_path, model):
    rows = [{"team": t, "request": body("e " + t)} for t in "ghigh"] + [{"request": body("z")}]
    result = analyze(write_log(tmp_path / "log.jsonl", rows), "--model", model, "--by", "team,model")
    assert {(g["key"]["team"], g["requests"]) for g in result["groups"]} == {("g", 2), ("h", 2), ("i", 1), (None, 1)}
    for name in ("sglang", "vllm"):
        whole = engine(result, name)
        assert sum(engine(g, name)["cached_tokens"] for g in result["groups"]) == whole["cached_tokens"]
        assert sum(g["prompt_tokens"] for g in result["groups"]) == whole["prompt_tokens"]


def test_the_lines_of_requests_add_up(tmp_path):
    out = tmp_path / "requests.jsonl"
    result = analyze(DEMO, "--requests-out", out)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == result["input"]["requests"]
    for name in ("sglang", "vllm"):
        whole = engine(result, name)
        assert sum(x["prompt_tokens"] for x in lines) == whole["prompt_tokens"]
        assert sum(x["engines"][name]["cached_tokens"] for x in lines) == whole["cached_tokens"]
        for line in lines:
            numbers = line["engines"][name]
            assert numbers["cached_tokens"] + sum(numbers["misses"].values()) == line["prompt_tokens"]
    assert [x["time"] for x in lines] == sorted(x["time"] for x in lines)
    parted = [x for x in lines if x["diverged_at"]]
    assert parted
    assert any(x["diverged_at"]["path"] == "messages[0].content" for x in parted)


def test_the_demo_log_conserves_tokens_everywhere():
    result = analyze(DEMO)
    for found in result["engines"]:
        assert found["cached_tokens"] + sum(found["misses"].values()) == found["prompt_tokens"]
    assert sum(f["requests"] for f in result["families"]) == result["input"]["requests"]
    for name in ("sglang", "vllm"):
        of_families = sum(f["engines"][name]["cached_tokens"] for f in result["families"])
        assert of_families == engine(result, name)["cached_tokens"]
        assert all(f["engines"][name]["ceiling"] >= f["engines"][name]["hit_rate"] for f in result["families"])


def test_two_runs_give_the_same_bytes():
    command = [sys.executable, "-m", "prefixlint", "analyze", str(DEMO), "--format", "json"]
    runs = {
        subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_a_hash_trace_follows_the_ideal_rule(tmp_path):
    rows = [
        {"timestamp": 0, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2]},
        {"timestamp": 9, "input_length": 1000, "output_length": 1, "hash_ids": [1, 2]},
        {"timestamp": 9, "input_length": 600, "output_length": 1, "hash_ids": [1, 3]},
    ]
    result = analyze(write_log(tmp_path / "trace.jsonl", rows))
    ideal = engine(result, "ideal")
    assert [e["engine"] for e in result["engines"]] == ["ideal"]
    assert (ideal["prompt_tokens"], ideal["cached_tokens"]) == (2600, 1000 + 512)
    assert ideal["hit_rate_blocks"] == 3 / 6


def test_usage_without_prompts_gives_the_reported_side(tmp_path):
    rows = [
        {"model": "m", "timestamp": i, "usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}}}
        for i in range(3)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    result = CliRunner().invoke(main, ["analyze", str(log), "--format", "json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["reported"]["hit_rate"] == 0.6
    assert found["engines"] == []


def test_a_minimum_that_the_servers_own_hits_refute_is_no_cause(tmp_path):
    rows = [
        {"model": "m", "timestamp": n, "usage": {"prompt_tokens": 500, "prompt_tokens_details": {"cached_tokens": hit}}}
        for n, hit in enumerate((0, 400, 0))
    ]
    causes = analyze(write_log(tmp_path / "log.jsonl", rows))["likely_causes"]
    assert "too-short" not in [cause["slug"] for cause in causes]
    assert sum(cause["requests"] for cause in causes) == 2
    for row in rows:
        row["usage"]["prompt_tokens_details"]["cached_tokens"] = 0
    (cause,) = analyze(write_log(tmp_path / "other.jsonl", rows))["likely_causes"]
    assert (cause["slug"], cause["requests"]) == ("too-short", 3)


def test_a_named_log_that_is_not_there_fails_the_run_and_loses_nothing(log, model, tmp_path):
    named = [str(tmp_path / "none.jsonl"), str(log), str(tmp_path / "*.nothing")]
    result = CliRunner().invoke(main, ["analyze", *named, "--model", model, "--format", "json"])
    assert result.exit_code == 2
    assert json.loads(result.stdout)["input"]["requests"] == 3
    assert "none.jsonl: no such file or folder" in result.stderr
    assert "*.nothing: no such file or folder" in result.stderr


def test_warm_up_is_left_out_of_the_rates(log, model):
    assert engine(analyze(log, "--model", model, "--warmup", "1"), "sglang")["prompt_tokens"] == 12 + 18
    assert engine(analyze(log, "--model", model, "--warmup", "34%"), "sglang")["requests"] == 2


def test_warm_up_is_left_out_of_every_rate(model, tmp_path):
    """What was reported, groups, families and their places are of the same requests as the rates of the engines."""
    rows = [
        {"request": {**body(f"{n} a b c d e f"), "user": f"u{n % 2}"}, "response": usage(40, 10 * n)} for n in range(4)
    ]
    log = write_log(tmp_path / "log.jsonl", rows)
    result = analyze(log, "--model", model, "--by", "user", "--warmup", "1")
    assert result["reported"]["requests"] == 3
    assert result["reported"]["cached_tokens"] == 60
    rates = engine(result, "sglang")
    for share in ("requests", "prompt_tokens"):
        assert sum(group[share] for group in result["groups"]) == rates[share]
        assert sum(family[share] for family in result["families"]) == rates[share]
    assert sum(span["requests"] for family in result["families"] for span in family["spans"]) <= 3
    assert result["waterfall"][0]["steps"][0]["hit_rate"] == result["reported"]["hit_rate"]
    assert [note["slug"] for note in result["notes"] if "warm-up: 1 request at the start" in note["message"]]
    nothing = analyze(log, "--model", model, "--warmup", "9")
    assert (nothing["reported"], nothing["families"], nothing["groups"]) == (None, [], [])


def test_since_and_sample_choose_requests(log, model):
    assert analyze(log, "--model", model, "--since", "101")["input"]["requests"] == 2
    assert analyze(log, "--model", model, "--since", "1970-01-01T00:01:42Z")["input"]["requests"] == 1
    assert analyze(log, "--model", model, "--sample", "2")["input"]["requests"] == 2
    run(log, "--model", model, "--since", "2100-01-01", code=2)


def test_a_sampled_log_is_said_to_understate(tmp_path, model):
    turns = [body(f"{a} {b}", "x", f"{b} {a}") for a in "efghij" for b in "klm"]
    notes = analyze(write_log(tmp_path / "log.jsonl", turns), "--model", model)["notes"]
    assert "sampled-log" in [n["slug"] for n in notes]
    whole = [r for a in "efghij" for b in "klm" for r in (body(f"{a} {b}"), body(f"{a} {b}", "x", f"{b} {a}"))]
    notes = analyze(write_log(tmp_path / "whole.jsonl", whole), "--model", model)["notes"]
    assert "sampled-log" not in [n["slug"] for n in notes]


def test_prompts_known_only_in_part_are_said_to_be(tmp_path, model, log):
    asked = {"type": "user", "uuid": "u", "parentUuid": None, "message": {"role": "user", "content": "a b"}}
    said = {"id": "m1", "model": "m", "role": "assistant", "content": [{"type": "text", "text": "c"}]}
    answer = {"type": "assistant", "uuid": "a", "parentUuid": "u", "message": said}
    rows = [row | {"sessionId": "s", "timestamp": "2025-03-03T09:00:00Z"} for row in (asked, answer)]
    result = analyze(write_log(tmp_path / "session.jsonl", rows), "--model", model)
    (note,) = [n["message"] for n in result["notes"] if n["slug"] == "partial-prompts"]
    assert note.startswith("1 prompt is known only in part")
    assert "system prompt" in note
    assert "partial-prompts" not in [n["slug"] for n in analyze(log, "--model", model)["notes"]]


def test_standard_input_and_compression(log, model, tmp_path):
    expected = analyze(log, "--model", model)
    piped = analyze("-", "--model", model, stdin=log.read_bytes())
    packed = tmp_path / "log.bin"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for found in (piped, analyze(packed, "--model", model)):
        assert found["engines"] == expected["engines"]
        assert found["families"][0]["spans"] or not expected["families"][0]["spans"]


def test_engines_can_be_chosen(log, model):
    result = analyze(log, "--model", model, "--engine", "vllm", "--block-size", "2")
    assert [e["engine"] for e in result["engines"]] == ["vllm"]
    assert engine(result, "vllm")["granularity"] == 2


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "no-log"),
        (("nowhere.jsonl",), 3, "nowhere.jsonl"),
        ((DEMO, "--engine", "vlm"), 2, "vllm"),
        ((DEMO, "--model", "./nowhere"), 2, "nowhere"),
        ((DEMO, "--since", "yesterday"), 2, "bad-time"),
        ((DEMO, "--since", "nan"), 2, "bad-time"),
        ((DEMO, "--since", "-inf"), 2, "bad-time"),
        ((DEMO, "--warmup", "x"), 2, "bad-warmup"),
        ((DEMO, "--fail-under", "200"), 2, "bad-percent"),
        ((DEMO, "--log-format", "opnai-chat"), 2, "openai-chat"),
        ((DEMO, "-o", "/nowhere/at/all"), 2, "cannot-write"),
        ((DEMO, "--tokens-from", "ftp://x"), 2, "bad-url"),
        ((DEMO, "--fail-under", "99"), 1, "hit rate below 99 %"),
    ],
)
def test_errors_say_what_to_do_and_set_the_exit_code(args, code, words):
    result = run(*args, code=code)
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_log_without_prefix_information_is_refused(tmp_path):
    log = tmp_path / "azure.csv"
    log.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    result = run(log, code=2)
    assert "error[" in result.stderr


def test_the_report_keeps_to_80_columns_and_makes_text_inert(tmp_path, model):
    evil = "\x1b[31mred \u202egnp \x00 \ud800"
    rows = [body("e", system=f"a {i} {evil} " + "b c d " * 30) for i in range(20)]
    log = write_log(tmp_path / "log.jsonl", rows)
    text = run(log, "--model", model).stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    # a command to copy stays in one piece
    assert not [line for line in text.splitlines() if len(line) > 80 and not line.lstrip().startswith("$ ")]
    colored = run(log, "--model", model, "--color", "always").stdout
    assert "\x1b[1m" in colored
    assert "\x1b[31mred" not in colored
    json.loads(run(log, "--model", model, "--format", "json").stdout)


@pytest.mark.parametrize("columns", ["20", "300"])
def test_any_width_works(columns):
    env = os.environ | {"COLUMNS": columns}
    subprocess.run([sys.executable, "-m", "prefixlint", "analyze", str(DEMO)], env=env, capture_output=True, check=True)


def test_a_result_file_appears_whole_or_not_at_all(tmp_path):
    out = tmp_path / "result.json"
    out.write_text("old")
    run("nowhere.jsonl", "-o", out, code=3)
    assert out.read_text() == "old"
    run(DEMO, "--format", "json", "-o", out)
    assert json.loads(out.read_text())["schema"] == "prefixlint.analyze/1"
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_closed_pipe_is_no_traceback():
    command = f"{sys.executable} -m prefixlint analyze {DEMO} --format json | head -c 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    assert b"Traceback" not in result.stderr


@pytest.fixture
def tokenizing_server():
    """A server whose `/tokenize` gives a token a word, and that remembers what it was asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, question))
            words = " ".join(m["content"] for m in question.get("messages", [])) or question.get("prompt", "")
            answer = json.dumps({"tokens": [zlib.crc32(w.encode()) for w in words.split()]}).encode()
            self.send_response(500 if "fail" in words else 200)
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self):
            known = PAGES.get(self.path)
            self.send_response(404 if known is None else 200)
            self.end_headers()
            self.wfile.write((known or "").encode())

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    thread.join()
    server.server_close()


PAGES: dict[str, str] = {}  # what the server of a test answers besides


@pytest.mark.parametrize(
    ("page", "text", "engine", "block"),
    [
        ("/metrics", '# HELP x\nvllm:cache_config_info{block_size="4",cpu="None"} 1.0\n', "vllm", 4),
        ("/get_server_info", '{"model_path": "m", "page_size": 2, "x": 1}', "sglang", 2),
        ("/metrics", 'vllm:cache_config_info{block_size="0"} 1.0', "vllm", None),
    ],
)
def test_blocks_are_those_of_the_server_that_counts(log, tokenizing_server, monkeypatch, page, text, engine, block):
    monkeypatch.setitem(PAGES, page, text)
    result = analyze(log, "--tokens-from", tokenizing_server[0])
    (found,) = [one for one in result["engines"] if one["engine"] == engine]
    assert (found["granularity_by"], found["granularity"]) == (("server", block) if block else ("profile", 16))
    assert any("as its server says" in note["message"] for note in result["notes"]) == bool(block)
    asked = analyze(log, "--tokens-from", tokenizing_server[0], "--block-size", "3")
    assert {one["granularity"] for one in asked["engines"]} == {3}


def test_token_ids_can_come_from_the_running_server(log, tokenizing_server):
    url, asked = tokenizing_server
    result = analyze(log, "--tokens-from", f"{url}/v1")
    # a b c d e f, a b c d e g h, a b c d e f x y z: the server's words, no template
    assert engine(result, "sglang")["prompt_tokens"] == 6 + 7 + 9
    assert engine(result, "sglang")["cached_tokens"] == 5 + 6
    assert [path for path, _ in asked] == ["/tokenize"] * 3
    assert result["tokenizers"][0]["checked_against"] == "server"


def test_a_server_that_fails_is_named(tmp_path, tokenizing_server):
    url, _ = tokenizing_server
    log = write_log(tmp_path / "log.jsonl", [body("fail")])
    assert "/tokenize answered 500" in run(log, "--tokens-from", url, code=2).stderr
    assert "does not answer" in run(log, "--tokens-from", "http://127.0.0.1:9", code=2).stderr


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("place", ["prefixlint.logrules._hits", "prefixlint.logrules.view"])
def test_a_fault_of_a_log_rule_costs_the_causes_and_not_the_analysis(log, model, monkeypatch, backwards, place):
    def stumble(*_):
        raise IndexError("a fault")

    expected = analyze(log, "--model", model)["engines"]
    if backwards:
        log.write_text("\n".join(log.read_text().splitlines()[::-1]))
    monkeypatch.setattr(place, stumble)
    result = analyze(log, "--model", model)
    assert result["engines"] == expected
    assert result["findings"] == []
    assert "causes-fault" in [note["slug"] for note in result["notes"]]


def test_llama_cpp_ignores_salts(tmp_path):
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "one prompt of several words, sent again and again"}],
    }
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(body | {"cache_salt": f"tenant{i % 2}"}) + "\n" for i in range(4)))
    result = pipeline.analyze([str(log)], pipeline.Options(engines=["llama.cpp", "sglang"], what_if=()))
    llama, sglang = result.engines
    each = llama.prompt_tokens // 4
    assert llama.cached_tokens == 3 * (each - 1)
    assert sglang.cached_tokens == 2 * (each - 1)
    assert llama.misses.get(MissCause.NAMESPACE, 0) == 0
    assert sglang.misses[MissCause.NAMESPACE] > 0
    assert sum(llama.misses.values()) + llama.cached_tokens == llama.prompt_tokens


@pytest.mark.parametrize("marked", [False, True])
def test_a_provider_that_goes_by_marks_is_left_out_where_its_hits_have_none(marked, tmp_path):
    """Transcripts of agents hold what was said and what was cached, and not the marks that made it so."""
    mark = {"cache_control": {"type": "ephemeral"}} if marked else {}
    system = [{"type": "text", "text": "You sort parcels by their weight and size. " * 200, **mark}]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system}
    usage = {"input_tokens": 40, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 1_800, "output_tokens": 2}
    rows = [
        {"request": {**body, "messages": [{"role": "user", "content": word}]}, "response": {"usage": usage}}
        for word in ("one", "two", "three")
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = pipeline.analyze([str(path)])
    assert ("anthropic" in {engine.engine for engine in result.engines}) == marked
    assert ("marks-not-logged" in {note.slug for note in result.notes}) != marked
    named = pipeline.analyze([str(path)], pipeline.Options(engines=("anthropic",)))
    assert [engine.engine for engine in named.engines] == ["anthropic"]
