"""The rewritten log: in the format that was read, read again as it was meant, and whole or not there at all."""

import copy
import gzip
import json
import random
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

import planting

from prefixlint import gains, logs, pipeline
from prefixlint.cli import main
from prefixlint.errors import UsageError
from prefixlint.model import Request


def bodies(code="PFX101", size=70, seed=6):
    return planting.Planted(seed, (code,), size).bodies()


def as_anthropic(body):
    system, *rest = body["messages"]
    messages = []
    for message in rest:
        if message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            if messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], list):
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "user", "content": [block]})
        elif message.get("tool_calls"):
            content = [{"type": "text", "text": message["content"]}]
            content += [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": json.loads(call["function"]["arguments"]),
                }
                for call in message["tool_calls"]
            ]
            messages.append({"role": "assistant", "content": content})
        else:
            messages.append({"role": message["role"], "content": message["content"]})
    tools = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in body["tools"]
    ]
    blocks = [{"type": "text", "text": system["content"], "cache_control": {"type": "ephemeral"}}]
    return {"model": "claude-x", "max_tokens": 9, "system": blocks, "tools": tools, "messages": messages}


def as_responses(body):
    system, *rest = body["messages"]
    items = []
    for message in rest:
        if message["role"] == "tool":
            items.append(
                {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
            )
            continue
        kind = "output_text" if message["role"] == "assistant" else "input_text"
        items.append(
            {"type": "message", "role": message["role"], "content": [{"type": kind, "text": message["content"]}]}
        )
        items += [
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
            for call in message.get("tool_calls", ())
        ]
    tools = [{"type": "function", **tool["function"]} for tool in body["tools"]]
    return {"model": "m", "instructions": system["content"], "input": items, "tools": tools}


def as_gemini(body):
    system, *rest = body["messages"]
    roles = {"user": "user", "assistant": "model", "tool": "user"}
    contents = [{"role": roles[m["role"]], "parts": [{"text": m["content"]}]} for m in rest]
    tools = [{"functionDeclarations": [tool["function"] for tool in body["tools"]]}]
    return {"systemInstruction": {"parts": [{"text": system["content"]}]}, "contents": contents, "tools": tools}


def as_bedrock(body):
    system, *rest = body["messages"]
    messages = []
    for message in rest:
        role = "assistant" if message["role"] == "assistant" else "user"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].append({"text": message["content"]})
        else:
            messages.append({"role": role, "content": [{"text": message["content"]}]})
    tools = [
        {
            "toolSpec": {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "inputSchema": {"json": tool["function"]["parameters"]},
            }
        }
        for tool in body["tools"]
    ]
    return {
        "modelId": "a.b",
        "system": [{"text": system["content"]}],
        "messages": messages,
        "toolConfig": {"tools": tools},
        "inferenceConfig": {"maxTokens": 5},
    }


def as_completion(body):
    head, last = body["messages"][0]["content"], body["messages"][-1]["content"]
    return {"model": "m", "max_tokens": 5, "prompt": f"{head}\n\nQuestion: {last}\nAnswer:"}


def alone(body, **keys):
    """Give a body of one question, with other names for the system text and the question."""
    known = {"head": body["messages"][0]["content"], "last": body["messages"][-1]["content"]}
    return {"model": "m", **{key: known.get(str(value), value) for key, value in keys.items()}}


def in_envelope(body, number, **reported):
    answer = {"role": "assistant", "content": "ok"}
    return {
        "timestamp": f"2031-03-04T10:{number // 60:02}:{number % 60:02}Z",
        "session_id": "s1",
        "request": body,
        "response": {"choices": [{"message": answer, "finish_reason": "stop"}], **reported},
    }


SHAPES = {
    "openai-chat": lambda body, n: body,
    "in an envelope": in_envelope,
    "body in a string": lambda body, n: {"ts": 1_900_000_000 + n, "request_body": json.dumps(body)},
    "columns in strings": lambda body, n: {
        "time": 1_900_000_000 + n,
        "model": "m",
        "messages": json.dumps(body["messages"]),
        "tools": json.dumps(body["tools"]),
    },
    "openai-batch": lambda body, n: {
        "custom_id": f"r{n}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
    },
    "anthropic-messages": lambda body, n: as_anthropic(body),
    "anthropic in an envelope": lambda body, n: {"ts": 1_900_000_000 + n, "request": as_anthropic(body)},
    "anthropic-batch": lambda body, n: {"custom_id": f"r{n}", "params": as_anthropic(body)},
    "openai-responses": lambda body, n: as_responses(body),
    "openai-responses of a text": lambda body, n: alone(body, instructions="head", input="last"),
    "ollama generate": lambda body, n: alone(body, system="head", prompt="last", stream=False, options={}),
    "completions in a list": lambda body, n: {**as_completion(body), "prompt": [as_completion(body)["prompt"]]},
    "gemini": lambda body, n: as_gemini(body),
    "gemini of a text": lambda body, n: alone(body, systemInstruction="head", contents="last"),
    "bedrock-converse": lambda body, n: as_bedrock(body),
}


def write(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def fixed(paths, out, **options):
    with out.open("wb") as file:
        watch = pipeline.Watch(on_fixed=file.write)
        return pipeline.analyze([str(path) for path in paths], pipeline.Options(**options), watch=watch)


def last(result, engine):
    return [w for w in result.what_if if w.engine == engine and w.family is None and w.cumulative][-1]


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_log_of_each_shape_is_written_in_that_shape(shape, tmp_path):
    values = [SHAPES[shape](body, n) for n, body in enumerate(bodies())]
    path, out = write(tmp_path / "log.jsonl", values), tmp_path / "out.jsonl"
    result = fixed([path], out)
    assert "PFX101" in {f.rule.code for f in result.findings}
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    before, after = (list(logs.read([str(p)])) for p in (path, out))
    assert [(r.format, r.line, r.time, r.id, r.session) for r in before] == [
        (r.format, r.line, r.time, r.id, r.session) for r in after
    ]
    changed = [n for n, (a, b) in enumerate(zip(values, written, strict=True)) if a != b]
    assert len(changed) > 10
    again = pipeline.analyze([str(out)])
    for engine in again.engines:
        if engine.ttl_s is None:
            told = last(result, engine.engine)
            assert (told.prompt_tokens, told.cached_tokens) == (engine.prompt_tokens, engine.cached_tokens)
    assert "PFX101" not in {f.rule.code for f in again.findings}


def test_marks_of_a_fixed_log_stand_where_its_own_blocks_end(tmp_path):
    def marked(body):
        body = as_anthropic(body)
        body["system"][0]["text"] += (
            "\n" + "Answer in the tone of the house. " * 400
        )  # more than the least that is read
        return body

    values = [{"ts": 1_900_000_000 + n, "request": marked(body)} for n, body in enumerate(bodies())]
    path, out = write(tmp_path / "log.jsonl", values), tmp_path / "out.jsonl"
    told = last(fixed([path], out), "anthropic")
    (again,) = (engine for engine in pipeline.analyze([str(out)]).engines if engine.engine == "anthropic")
    assert (told.prompt_tokens, told.cached_tokens) == (again.prompt_tokens, again.cached_tokens)
    assert again.cached_tokens > 0


def test_a_prompt_that_is_one_text_keeps_its_last_line_last(tmp_path):
    def prompts():
        for number, body in enumerate(planting.Planted(6, (), 40).bodies()):
            clock = {"role": "system", "content": f"Now: 11:{number:02}:07\n" + planting.words(random.Random(1), 60)}
            yield as_completion({**body, "messages": [clock, *body["messages"][1:]]})

    path, out = write(tmp_path / "log.jsonl", prompts()), tmp_path / "out.jsonl"
    result = fixed([path], out, what_if=("PFX101",))
    assert "PFX101" in {f.rule.code for f in result.findings}
    written = [json.loads(line)["prompt"] for line in out.read_text(encoding="utf-8").splitlines()]
    assert all(prompt.endswith("\nAnswer:") for prompt in written)
    assert len({prompt[:2_000] for prompt in written}) == 1
    assert all(f"11:{n:02}:07" in prompt for n, prompt in enumerate(written))
    assert last(result, "sglang").hit_rate > result.engines[0].hit_rate + 0.5


def test_what_was_reported_of_a_changed_request_is_left_out(tmp_path):
    usage = {"prompt_tokens": 2_000, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 64}}
    path, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    fixed([write(path, [in_envelope(body, n, usage=usage) for n, body in enumerate(bodies())])], out)
    before, after = (list(logs.read([str(p)])) for p in (path, out))
    assert all(request.usage.cached == 64 for request in before)
    for one, two in zip(before, after, strict=True):
        assert (two.usage is None) == (one.body != two.body)
        assert two.output == one.output


def test_a_tool_called_usage_stays(tmp_path):
    values = bodies()
    for body in values:
        body["tools"].append(
            {"type": "function", "function": {"name": "usage", "parameters": {"properties": {"usage": {}}}}}
        )
    out = tmp_path / "out.jsonl"
    fixed([write(tmp_path / "log.jsonl", values)], out)
    for line in out.read_text(encoding="utf-8").splitlines():
        assert json.loads(line)["tools"][-1]["function"]["parameters"] == {"properties": {"usage": {}}}


def test_a_log_out_of_order_keeps_its_order(tmp_path):
    values = [in_envelope(body, n) for n, body in enumerate(bodies())]
    random.Random(2).shuffle(values)
    path, out = write(tmp_path / "log.jsonl", values), tmp_path / "out.jsonl"
    result = fixed([path], out)
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [value["timestamp"] for value in written] == [value["timestamp"] for value in values]
    again = pipeline.analyze([str(out)])
    assert {e.engine: e.cached_tokens for e in again.engines} == {
        e.engine: last(result, e.engine).cached_tokens for e in again.engines
    }


def test_several_files_a_compressed_one_and_standard_input(tmp_path):
    import io

    values = bodies()
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress("".join(json.dumps(v) + "\n" for v in values[:40]).encode()))
    other = write(tmp_path / "b.jsonl", values[40:])
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    fixed([packed, other], out)
    text = "".join(json.dumps(v) + "\n" for v in values).encode()
    with whole.open("wb") as file:
        watch = pipeline.Watch(on_fixed=file.write)
        pipeline.analyze(["-"], stdin=io.BytesIO(text), watch=watch)
    assert out.read_text() == whole.read_text()
    assert len(out.read_text().splitlines()) == len(values)


def test_lines_that_hold_no_request_stay_where_they_are(tmp_path):
    values = bodies(size=60)
    values.insert(3, {"event": "started", "at": 7})
    path, out = write(tmp_path / "log.jsonl", values), tmp_path / "out.jsonl"
    fixed([path], out)
    assert json.loads(out.read_text().splitlines()[3]) == {"event": "started", "at": 7}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (json.dumps(bodies(), indent=1), "JSON lines"),
        ("prompt\n" + "".join(f"{n} is a prompt of some words\n" for n in range(9)), "JSON lines"),
    ],
)
def test_what_cannot_be_written_back_is_refused_and_nothing_is_left(text, says, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(text)
    out = tmp_path / "out.jsonl"
    out.write_text("older")
    ran = CliRunner().invoke(main, ["analyze", str(path), "--write-fixed", str(out), "-o", str(tmp_path / "r.txt")])
    assert ran.exit_code == 2
    assert "error[not-writable]" in ran.stderr
    assert says in ran.stderr
    assert out.read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_a_format_that_cannot_be_written_back_is_refused_before_the_log_is_read(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    path.write_text(json.dumps(bodies(), indent=1))

    def read(*_given, **_more):
        raise AssertionError("the log was read")

    monkeypatch.setattr(pipeline, "_read", read)
    with pytest.raises(UsageError, match="JSON lines"):
        fixed([path], tmp_path / "out.jsonl")
    good = write(tmp_path / "log.jsonl", bodies())
    with pytest.raises(AssertionError, match="the log was read"):
        fixed([good], tmp_path / "out.jsonl")


def test_the_check_leaves_standard_input_to_be_read(tmp_path):
    path, out = write(tmp_path / "log.jsonl", bodies()), tmp_path / "out.jsonl"
    ran = CliRunner().invoke(main, ["analyze", "-", "--write-fixed", str(out)], input=path.read_bytes())
    assert ran.exit_code == 0, ran.stderr
    assert len(out.read_text().splitlines()) == len(path.read_text().splitlines())


def test_lines_that_cannot_be_read_are_kept_or_counted(tmp_path):
    lines = [json.dumps(body) for body in bodies(size=60)]
    lines[4:4] = ["== restarted at 09:10 =="]
    lines[9:9] = [lines[9][:200]]
    path, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    path.write_text("\n".join(lines) + "\n")
    result = fixed([path], out)
    written = out.read_text().splitlines()
    assert written[4] == "== restarted at 09:10 =="
    assert len(written) == len(lines) - 1
    (note,) = [n.message for n in result.notes if n.slug == "write-fixed-lost"]
    assert note == "1 line that cannot be read (the first is 10) left out of the written log"


def test_a_folder_may_hold_other_files(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    write(folder / "log.jsonl", bodies(size=60))
    (folder / "notes.md").write_text("# What this is\n\nLogs of one day.\n")
    out = tmp_path / "out.jsonl"
    fixed([folder], out)
    assert len(out.read_text().splitlines()) == 60


def test_a_record_that_would_be_read_otherwise_is_refused():
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    request = Request("a", 1, None, "openai-chat", body=body)
    from prefixlint.logs import _write
    from prefixlint.logs._records import Raw

    record = Raw(1, "json", {"request": body}, 0)
    with pytest.raises(UsageError, match="openai-chat cannot be written back: its request body"):
        list(_write.lines([("a", "json", record._replace(value={"x": 1}), [request])], lambda place: {"model": "n"}))
    with pytest.raises(UsageError, match="read as another request"):
        list(_write.lines([("a", "json", record, [request])], lambda place: {"model": "n"}))
    new = copy.deepcopy(body) | {"messages": [{"role": "user", "content": "\ud800ho"}]}
    (line,) = _write.lines([("a", "json", record, [request])], lambda place: new)
    assert json.loads(line)["request"] == new


def test_the_command_line(tmp_path):
    path, out = write(tmp_path / "log.jsonl", bodies()), tmp_path / "out.jsonl"
    run = CliRunner().invoke
    ran = run(main, ["analyze", str(path), "--write-fixed", str(out), "--format", "json", "-o", str(tmp_path / "a")])
    assert ran.exit_code == 0, ran.output
    result = json.loads((tmp_path / "a").read_text())
    rows = result["what_if"]
    assert {row["cumulative"] for row in rows} == {True, False}
    assert set(rows[0]) == {
        "fix",
        "rules",
        "family",
        "engine",
        "prompt_tokens",
        "cached_tokens",
        "hit_rate",
        "cumulative",
    }
    assert result["not_simulated"] == []
    assert result["waterfall"][0]["steps"][0]["kind"] == "logged"
    assert len(out.read_text().splitlines()) == len(path.read_text().splitlines())
    text = run(main, ["analyze", str(path)]).stdout
    assert "What fixing gives" in text
    assert "PFX101" in text.split("What fixing gives")[1].split("\n\n")[0]
    assert "only what is truly new is computed" in text
    none = run(main, ["analyze", str(path), "--what-if", "none"]).stdout
    assert "What fixing gives" not in none


def test_the_log_is_written_with_all_fixes_however_many_prompts_they_take(tmp_path, monkeypatch):
    planted = planting.Planted(6, ("PFX101+PFX304",), 70, clean=0)
    path, run = write(tmp_path / "log.jsonl", planted.bodies()), CliRunner().invoke
    monkeypatch.setattr(gains, "FEW", 1)
    few = run(main, ["analyze", str(path)]).stdout
    assert "--what-if all takes longer" in " ".join(few.split())
    out = tmp_path / "fixed.jsonl"
    done = run(main, ["analyze", str(path), "--write-fixed", str(out)])
    assert done.exit_code == 0
    assert "takes longer" not in " ".join(done.stdout.split())
    assert out.read_bytes() != path.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ("--what-if", "none", "--write-fixed", "x"),
        ("--what-if", "none", "--what-if", "PFX101"),
        ("--what-if", "no-such-rule"),
        ("--write-fixed", "-"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, tmp_path):
    path = write(tmp_path / "log.jsonl", bodies(size=8))
    ran = CliRunner().invoke(main, ["analyze", str(path), *options])
    assert ran.exit_code == 2
    assert "error[" in ran.stderr


def test_a_request_that_goes_on_from_one_that_is_not_logged_stays_where_it_is(tmp_path):
    text = "You help people with parcels and drivers all day long. " * 40
    values = []
    for n in range(9):
        request = {"model": "gpt-5", "instructions": f"It is 10:{n:02}:11. {text}", "input": f"question {n}"}
        if n in (0, 5):
            request["previous_response_id"] = "resp_of_another_day"
        answer = {"id": f"resp_{n}", "object": "response", "output": []}
        values.append({"time": 1000 + n, "request": request, "response": answer})
    out = tmp_path / "out.jsonl"
    fixed([write(tmp_path / "log.jsonl", values)], out)
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [value["time"] for value in written] == [value["time"] for value in values]
    assert written[0] == values[0]
    assert written[1]["request"] != values[1]["request"]
