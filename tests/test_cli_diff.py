"""`prefixlint diff`: two requests, from files or from lines of a log."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

LOG = Path(__file__).parents[1] / "fixtures" / "logrules" / "checksum-line" / "requests.jsonl"


def run(*arguments):
    done = CliRunner().invoke(main, ["diff", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def shown(*arguments, tokens=False):
    code, out, _ = run(*arguments, "--format", "json", *([] if tokens else ["--text-only"]))
    assert code == 0
    return json.loads(out)


def body(path, system, *texts, **more):
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}]
    messages += [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    path.write_text(json.dumps({"model": "m", "messages": messages, **more}))
    return path


def test_two_lines_of_a_log():
    found = shown(f"{LOG}#1", f"{LOG}#2")
    first = found["first"]
    assert (first["rule"], first["path"], first["char"]) == ("PFX110", "system[0].text", 40)
    assert first["values"] == ["3fa10", "b07c2"]
    assert found["shared"]["characters"] == len("text") + 40


def test_all_differences_are_listed_in_order(tmp_path):
    a = body(tmp_path / "a.json", "Now 09:10. Be kind.", "first", "reply", "second question of some length")
    b = body(tmp_path / "b.json", "Now 09:12. Be kind.", "first", "REPLY!", "second question of some length", "x", "y")
    found = shown(a, b)
    assert [(d["rule"], d["relation"], d["path"]) for d in found["differences"]] == [
        ("PFX101", "changed", "messages[0].content"),
        ("PFX401", "changed", "messages[2].content"),
        (None, "added", "messages[4]"),
        (None, "added", "messages[5]"),
    ]
    equal = [row for row in found["aligned"] if row["relation"] == "equal"]
    assert [(row["path"], row["last_path"]) for row in equal] == [("messages[1]", "messages[1]"), ("messages[3]",) * 2]


def test_keys_in_another_order_are_listed(tmp_path):
    def asked(path, text, keys):
        call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": dict.fromkeys(keys, "x")}}
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": None, "tool_calls": [call]}]
        path.write_text(json.dumps({"model": "m", "messages": messages}))
        return path

    one = asked(tmp_path / "a.json", "look", ("road", "crate"))
    for text, paths in (("look", ["messages[1]"]), ("Look", ["messages[0]", "messages[1]"])):
        found = shown(one, asked(tmp_path / "b.json", text, ("crate", "road")))["differences"]
        assert [d["path"][:11] for d in found] == paths
        assert [value.split(".")[-1] for value in found[-1]["values"]] == ["crate", "road"]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("What is 17 plus 4?", "What is 18 plus 4?"),
        ("Translate the word house into French.", "Translate the word horse into French."),
        ("a question and some more about it", "a question and some"),
    ],
)
def test_two_questions_are_no_turns_of_one_conversation(one, two, tmp_path):
    a, b = body(tmp_path / "a.json", "You help.", one), body(tmp_path / "b.json", "You help.", two)
    assert shown(a, b)["first"]["rule"] is None
    later = body(tmp_path / "c.json", "You help.", two, "a reply", "the next question")
    assert shown(body(tmp_path / "d.json", "You help.", one, "a reply"), later)["first"]["rule"] is not None


def test_what_stands_ahead_of_two_questions_is_compared(tmp_path):
    tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
    a = body(tmp_path / "a.json", "You help.", "What is 17 plus 4?", tools=[tool])
    b = body(
        tmp_path / "b.json", "You help.", "What is 18 plus 4?", tools=[tool, {**tool, "function": {"name": "see"}}]
    )
    assert shown(a, b)["first"]["rule"] == "PFX305"


def test_a_request_that_only_goes_on(tmp_path):
    a, b = body(tmp_path / "a.json", "s", "q"), body(tmp_path / "b.json", "s", "q", "a", "r")
    found = shown(a, b)
    assert found["first"]["message"] == "the later request only goes on"
    assert found["first"]["rule"] is None


def test_equal_requests(tmp_path):
    a = body(tmp_path / "a.json", "s", "q")
    assert shown(a, a)["equal"] is True
    assert "hold the same prompt" in " ".join(run(a, a)[1].split())


@pytest.mark.parametrize(
    ("more", "words"),
    [({"model": "other"}, "the model (m, then other)"), ({"cache_salt": "a"}, "the salt that separates caches")],
)
def test_what_keeps_caches_apart_is_said_of_equal_prompts(tmp_path, more, words):
    alike = {"model": "m", "messages": [{"role": "user", "content": "weigh each crate " * 99}]}
    for name, asked in (("a", alike), ("b", {**alike, **more})):
        (tmp_path / f"{name}.json").write_text(json.dumps(asked))
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    found = json.loads(CliRunner().invoke(main, ["diff", str(a), str(b), "--format", "json"]).stdout)
    assert {engine["cached_tokens"] for engine in found["engines"]} == {0}
    assert found["notes"] == [f"no cache serves one of the other, since they differ in {words}"]
    assert shown(a, a)["notes"] == []
    asserted = CliRunner().invoke(main, ["assert", str(a), str(b), "--min-shared", "50%"])
    assert words in " ".join(asserted.stdout.split())


def test_plain_prompts(tmp_path):
    (tmp_path / "a.txt").write_text("You weigh crates. Step 1 of 9.")
    (tmp_path / "b.txt").write_text("You weigh crates. Step 2 of 9.")
    found = shown(tmp_path / "a.txt", tmp_path / "b.txt")
    assert (found["first"]["path"], found["first"]["char"]) == ("prompt", 23)
    shared = found["shared"]
    assert (shared["characters"], shared["of"], shared["behind"]) == (23, 30, 6)


def test_tokens_and_verdicts(tmp_path):
    rules = "Weigh each crate, note the road it takes, and never guess. " * 120
    a = body(tmp_path / "a.json", rules + "Now 09:10. " + rules, "first question")
    b = body(tmp_path / "b.json", rules + "Now 09:12. " + rules, "second question")
    found = shown(a, b, tokens=True)
    tokens = found["shared"]["tokens"]
    assert found["first"]["token"] == tokens["index"] == tokens["before"]
    assert not tokens["exact"]
    verdicts = {verdict["engine"]: verdict for verdict in found["engines"]}
    assert set(verdicts) >= {"sglang", "vllm", "openai"}
    for verdict in verdicts.values():
        assert verdict["cached_tokens"] + sum(verdict["misses"].values()) == verdict["prompt_tokens"] == tokens["later"]
    assert verdicts["sglang"]["cached_tokens"] == tokens["before"]
    assert verdicts["vllm"]["cached_tokens"] == tokens["before"] // 16 * 16
    assert verdicts["openai"]["cached_tokens"] == tokens["before"] // 128 * 128 >= 1024
    assert verdicts["sglang"]["misses"]["diverged"] == tokens["behind"] > 1000
    assert verdicts["sglang"]["from"] == {"path": str(a), "line": 1}
    _, text, _ = run(a, b, "--engine", "vllm", "--block-size", "32")
    assert "vllm, by 32" in text
    assert "sglang" not in text


def test_two_anthropic_bodies_without_a_tokenizer(tmp_path):
    def claude(name, clock, *texts):
        path = tmp_path / name
        system = [{"type": "text", "text": f"Be brief. {clock} Stay kind.", "cache_control": {"type": "ephemeral"}}]
        messages = [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)]
        path.write_text(
            json.dumps({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages})
        )
        return path

    a, b = claude("a.json", "It is 09:10.", "hi"), claude("b.json", "It is 09:14.", "hi", "hello", "so?")
    found = shown(a, b)
    assert (found["first"]["path"], found["first"]["char"], found["first"]["rule"]) == ("system[0].text", 20, "PFX101")
    assert found["engines"] == []
    assert found["shared"]["tokens"] is None
    assert [v["engine"] for v in shown(a, b, tokens=True)["engines"]] == ["sglang", "vllm", "anthropic"]


def test_a_marked_prefix_is_served_by_anthropic(tmp_path):
    text = "Weigh each crate, note the road it takes, and never guess. " * 200
    system = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    paths = []
    for name in ("a", "b"):
        paths.append(tmp_path / f"{name}.json")
        messages = [{"role": "user", "content": f"crate {name}"}]
        request = {"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages}
        paths[-1].write_text(json.dumps(request))
    (verdict,) = shown(*paths, "--engine", "anthropic", tokens=True)["engines"]
    assert verdict["cached_tokens"] > 1024


def test_tools_are_aligned_by_name(tmp_path):
    def tool(name, text):
        return {"type": "function", "function": {"name": name, "description": text, "parameters": {}}}

    a = body(
        tmp_path / "a.json", "s", "q", tools=[tool("add", "adds"), tool("sub", "takes away"), tool("mul", "times")]
    )
    b = body(tmp_path / "b.json", "s", "q", tools=[tool("add", "adds"), tool("mul", "times"), tool("div", "shares")])
    rows = [(row["relation"], row["path"]) for row in shown(a, b)["aligned"]]
    assert rows[:4] == [("equal", "tools[0]"), ("removed", "tools[1]"), ("equal", "tools[1]"), ("added", "tools[2]")]


def test_prompts_logged_as_token_ids(tmp_path):
    log = tmp_path / "ids.jsonl"
    prompts = [list(range(100)), [*range(60), 7, *range(61, 120)]]
    log.write_text("\n".join(json.dumps({"model": "m", "prompt_token_ids": ids}) for ids in prompts))
    found = shown(f"{log}#1", f"{log}#2", tokens=True)
    assert (found["first"]["path"], found["first"]["char"], found["first"]["token"]) == ("tokens", 60, 60)
    assert found["shared"]["characters"] is None
    assert run(f"{log}#1", f"{log}#2", "--text-only")[0] == 2


def test_masked_values_stay_apart_and_are_never_cut(tmp_path):
    times = ("2026-03-01T09:12:44Z", "2026-03-01T09:12:51Z")
    a, b = (body(tmp_path / f"{n}.json", f"mail anna@example.org at {t} please " * 3, "q") for n, t in enumerate(times))
    for form in ("text", "json"):
        _, out, _ = run(a, b, "--redact", "--format", form)
        assert "2026" not in out
        assert "09:12" not in out
        assert "anna@" not in out
        assert "<timestamp:" in out
    found = shown(a, b, "--redact")
    assert len({found["first"]["excerpt"][side] for side in ("earlier", "later")}) == 2


def test_excerpts_are_short(tmp_path):
    a, b = (body(tmp_path / f"{n}.json", "same " + n * 5000 + " same", "q") for n in "xy")
    found = shown(a, b)
    texts = [*found["first"]["excerpt"].values(), *(v for d in found["differences"] for v in d["values"])]
    assert max(map(len, texts)) <= 80


def test_requests_that_share_nothing(tmp_path):
    a, b = body(tmp_path / "a.json", "alpha", "one"), body(tmp_path / "b.json", "Zulu!", "two?")
    found = shown(a, b)
    assert (found["first"]["path"], found["first"]["char"]) == ("messages[0].content", 0)
    assert not found["equal"]


def test_credentials_are_masked(tmp_path):
    a, b = (body(tmp_path / f"{n}.json", f"key sk-abcdefghijklmnopqrst{n} and on", "q") for n in "12")
    assert "sk-abc" not in run(a, b)[1]


@pytest.mark.parametrize(("name", "code"), [("missing.json", 3), (f"{LOG}#99", 2), ("missing.jsonl#1", 3)])
def test_what_cannot_be_read_is_said(name, code):
    found, _, talk = run(f"{LOG}#1", name)
    assert found == code
    assert "Traceback" not in talk
    assert talk


def test_text_alone_needs_no_numpy(tmp_path):
    a, b = body(tmp_path / "a.json", "It is 09:10.", "q"), body(tmp_path / "b.json", "It is 09:12.", "q")
    code = (
        "import sys; from prefixlint.cli import main\n"
        f"main(['diff', {str(a)!r}, {str(b)!r}, '--text-only'], standalone_mode=False)\n"
        "print('heavy:', sorted({'numpy', 'tokenizers', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "first divergence" in done.stdout
    assert done.stdout.endswith("heavy: []\n")
