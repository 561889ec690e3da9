"""`prefixlint explain`: one request from its text to its hits, and what it should have matched."""

import json

import pytest
from click.testing import CliRunner

from prefixlint.cli import main

RULES = "Weigh each crate, note the road it takes, and never guess. " * 60


def run(*arguments):
    done = CliRunner().invoke(main, ["explain", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def shown(*arguments):
    code, out, talk = run(*arguments, "--format", "json")
    assert code == 0, talk
    return json.loads(out)


def request(system, *texts, **more):
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}]
    return {
        "model": "m",
        "messages": messages + [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)],
        **more,
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    rows = [
        request(f"Now 09:10:44. {RULES}", "which crate is first?"),
        request(f"Now 09:11:02. {RULES}", "which crate is first?", "the red one", "and then?"),
        request(
            f"Now 09:11:02. {RULES}", "which crate is first?", "the red one", "and then?", "the blue one", "thanks"
        ),
        request("You are a poet of few words, who answers in verse and never in prose.", "sing to anna@example.org"),
    ]
    path = tmp_path_factory.mktemp("explain") / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def parted(log):
    return shown(f"{log}#2")


def test_misses_by_cause_add_up_to_the_prompt(parted):
    assert {engine["engine"] for engine in parted["engines"]} == {"sglang", "vllm"}
    for engine in parted["engines"]:
        assert engine["cached_tokens"] + sum(engine["misses"].values()) == parted["prompt_tokens"]


def test_passages_cover_the_prompt_and_say_what_matched(parted):
    end = 0
    for passage in parted["passages"]:
        assert passage["token"] == end
        end += passage["tokens"]
    assert end == parted["prompt_tokens"]
    assert sum(passage["matched"] for passage in parted["passages"]) == parted["engines"][0]["cached_tokens"]
    assert max(len(passage["text"]) for passage in parted["passages"]) <= 80


def test_what_it_should_have_matched_and_why_not(parted, log):
    expected = parted["expected"]
    assert (expected["path"], expected["line"]) == (str(log), 1)
    assert expected["relation"] == "the turn before it in its conversation"
    place = expected["diverged_at"]
    assert (place["rule"], place["path"]) == ("PFX101", "messages[0].content")
    assert place["values"] == ["09:10:44", "09:11:02"]
    assert place["char"] == len("Now 09:1")
    assert place["token"] == expected["shared_tokens"] == parted["engines"][0]["cached_tokens"]
    assert expected["lost_tokens"] == parted["engines"][0]["misses"]["diverged"] > 500
    assert "newest user message" in expected["advice"]


def test_the_conversation_and_family(parted, log):
    assert (parted["conversation"]["turn"], parted["conversation"]["turns"]) == (2, 3)
    assert parted["conversation"]["earlier"] == [{"path": str(log), "line": 1}]
    assert parted["family"]["requests"] == 3


def test_a_request_that_goes_on(log):
    found = shown(f"{log}#3")
    assert found["expected"]["line"] == 2
    assert found["expected"]["diverged_at"] is None
    assert found["engines"][0]["from"] == {"path": str(log), "line": 2}
    assert "it did; all of its" in " ".join(run(f"{log}#3")[1].split())


def test_standard_input(log):
    done = CliRunner().invoke(main, ["explain", "--format", "json", "--", "-#2"], input=log.read_text())
    found = json.loads(done.stdout)
    assert (found["path"], found["expected"]["line"], found["expected"]["diverged_at"]["rule"]) == ("-", 1, "PFX101")


def test_a_line_of_standard_input_needs_no_mark_before_it(log):
    done = CliRunner().invoke(main, ["explain", "-#2", "--format", "json"], input=log.read_bytes())
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["line"] == 2
    wrong = CliRunner().invoke(main, ["explain", "-#x"], input=log.read_bytes())
    assert wrong.exit_code == 2
    assert "-#x names no request" in wrong.stderr


def tool(name):
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}}
    told = f"does {name} for the desk and tells what it found there"
    return {"type": "function", "function": {"name": name, "description": told, "parameters": parameters}}


def test_tools_in_another_order_are_as_much_behind_for_diff_as_for_explain(tmp_path):
    names = ["alpha", "bravo", "charlie", "delta", "echo"]
    orders = [names, [names[i] for i in (2, 0, 1, 4, 3)]]
    path = tmp_path / "log.jsonl"
    rows = [request(RULES, "which crate?", tools=[tool(name) for name in order]) for order in orders]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = shown(f"{path}#2")
    done = CliRunner().invoke(main, ["diff", f"{path}#1", f"{path}#2", "--format", "json"])
    assert done.exit_code == 0, done.stderr
    compared = json.loads(done.stdout)
    assert compared["shared"]["tokens"]["behind"] == told["expected"]["lost_tokens"] > 0
    mine, theirs = ({v["engine"]: v["misses"] for v in one["engines"]} for one in (told, compared))
    assert mine["sglang"] == theirs["sglang"]


def test_the_first_request_has_nothing_to_match(log):
    code, out, _ = run(f"{log}#1")
    assert code == 0
    assert "Nothing to match" in out


def test_a_request_whose_own_text_begins_somewhere(tmp_path):
    rows = [request(f"Office {k}. {RULES}", f"how heavy is {n * 7919}?") for n, k in enumerate((1, 2, 1, 2))]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    expected = shown(f"{path}#4")["expected"]
    assert expected["line"] == 2
    assert expected["relation"] == "the request that its longest prefix comes from"
    assert expected["lost_tokens"] == 0
    assert (expected["diverged_at"]["rule"], expected["advice"]) == (None, None)
    assert expected["diverged_at"]["path"] == "messages[1].content"
    assert "up to where its own text begins" in " ".join(run(f"{path}#4")[1].split())


def test_limits_and_engines(log):
    found = shown(f"{log}#3", "--engine", "vllm", "--capacity", "600", "--block-size", "32")
    (engine,) = found["engines"]
    assert engine["granularity"] == 32
    assert engine["cached_tokens"] + sum(engine["misses"].values()) == found["prompt_tokens"]


def test_masks(log):
    for form in ("text", "json"):
        _, out, _ = run(f"{log}#4", "--redact", "--format", form)
        assert "anna@" not in out
        assert "<email:" in out
        _, out, _ = run(f"{log}#2", "--redact", "--format", form)
        assert "09:1" not in out


def test_hash_traces(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": t, "input_length": 1024, "output_length": 5, "hash_ids": ids}
        for t, ids in ((0, [1, 2]), (9, [1, 3]))
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = shown(f"{path}#2")
    assert found["passages"] == []
    assert found["engines"][0]["cached_tokens"] == 512


def test_bodies_that_are_equal_while_the_template_tells_the_time(tmp_path):
    template = tmp_path / "clock.jinja"
    template.write_text(
        "{{ strftime_now('%H:%M:%S') }} {% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
    )
    path = tmp_path / "log.jsonl"
    times = ("2026-03-01T09:12:44Z", "2026-03-01T09:13:51Z")
    path.write_text("\n".join(json.dumps({"timestamp": t, "request": request(RULES, "again")}) for t in times))
    found = shown(f"{path}#2", "--chat-template", template)
    place = found["expected"]["diverged_at"]
    assert place["message"] == "the chat template writes something else"
    assert place["path"] is None
    assert place["excerpt"]["earlier"] != place["excerpt"]["later"]
    assert "rendered prompt" in run(f"{path}#2", "--chat-template", template)[1]


@pytest.mark.parametrize(("place", "code"), [("nothing.jsonl#1", 3), ("{log}#99", 2), ("{log}", 2), ("{log}#x", 2)])
def test_what_cannot_be_explained_is_said(log, place, code):
    found, _, talk = run(place.format(log=log))
    assert found == code
    assert "error[" in talk
    assert "Traceback" not in talk


def test_a_request_without_a_prompt(tmp_path, log):
    path = tmp_path / "mixed.jsonl"
    usage = {"id": "x", "model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}
    path.write_text(log.read_text() + "\n" + json.dumps(usage))
    code, _, talk = run(f"{path}#5")
    assert code == 2
    assert "line 5" in talk


def test_two_counts_of_one_prompt_are_told_apart(tmp_path):
    """A stand-in's tokens are scaled to the server's count; the pieces of the prompt are its own."""
    log = tmp_path / "log.jsonl"
    usage = {"usage": {"prompt_tokens": 2_000, "completion_tokens": 1}}
    log.write_text("".join(json.dumps({"request": request(RULES, q), "response": usage}) + "\n" for q in ("a", "b")))
    found = shown(f"{log}#2", "--engine", "sglang", "--engine", "deepseek")
    assert found["prompt_tokens"] == 2_000 > sum(piece["tokens"] for piece in found["passages"])
    assert any("as the server counts" in note for note in found["notes"])
    said = " ".join(run(f"{log}#2", "--engine", "sglang", "--engine", "deepseek")[1].split())
    assert f"sglang: from {log}#1, the first to have written" in said  # and not deepseek, which served nothing


def test_a_second_cause_behind_the_first_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    tool = {
        name: {"type": "function", "function": {"name": name, "description": RULES[:90]}} for name in ("ask", "tell")
    }
    rows = [
        request(f"Now 09:1{n}:44. {RULES}", f"question {n}", tools=[tool[name] for name in names])
        for n, names in enumerate((("ask", "tell"), ("tell", "ask"), ("tell", "ask")))
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    expected = shown(f"{path}#2")["expected"]
    assert expected["diverged_at"]["rule"] == "PFX304"
    assert [(other["rule"], other["path"]) for other in expected["behind"]] == [("PFX101", "messages[0].content")]
    text = " ".join(run(f"{path}#2")[1].split())
    assert "Behind it, and to be mended as well: PFX101 the system text holds the time of day" in text
    assert shown(f"{path}#3")["expected"]["behind"] == []
