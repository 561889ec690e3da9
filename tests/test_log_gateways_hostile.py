"""Mutilated gateway logs: whatever is missing or of the wrong type, only requests and named skips come out."""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixlint.errors import LogRefusedError, NoInputError
from prefixlint.logs import read
from prefixlint.logs._exchange import labels
from prefixlint.model import Latency, Messages, NoPrompt, Output, Request, Skip, Text, TokenIds, Usage

SAMPLES = Path(__file__).parent.parent / "fixtures" / "logs" / "samples"
FILES = [
    "anthropic_batch_requests.jsonl",
    "anthropic_batch_results.jsonl",
    "bedrock_converse_bodies.jsonl",
    "bedrock_invocation_log_converse.jsonl",
    "claude_code_session.jsonl",
    "codex_rollout.jsonl",
    "gemini_batch.jsonl",
    "gemini_bodies.jsonl",
    "gemini_pairs.jsonl",
    "helicone_export.jsonl",
    "langfuse_observations_api.json",
    "langsmith_runs_openai.jsonl",
    "litellm_standard_logging.jsonl",
    "openinference_otlp_spans.json",
    "otel_genai_events_v1_28.jsonl",
    "otel_genai_span_events_v1_27.json",
    "otel_genai_spans_v1_37.json",
    "otel_openllmetry_spans.json",
    "phoenix_spans_dataframe.jsonl",
    "proxy.har",
    "sagemaker_data_capture.jsonl",
]


def values_of(name):
    data = (SAMPLES / name).read_text("utf-8")
    return [json.loads(data)] if data.startswith("{\n") else [json.loads(line) for line in data.splitlines()]


ORIGINALS = {name: values_of(name) for name in FILES}
NASTY = st.sampled_from(
    [
        *(None, True, 0, -1, 1.5, 1e300, 2**70, "", "x", "{", "[]", "{}", '[{"role": 7}]', '"{}"', "NaN", "\ud800"),
        *([], [[]], [None], [{}], {}, {"role": None}, {"a.b": {"c.d": 1}}, {"0": {"0": []}}, {"text": {}}),
        *({"type": "text"}, {"messages": {}}, [[["x"]]], {"data": [[]]}),
    ]
)


def places(value, at=()):
    """Every path into a JSON value."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inside:
        yield from places(held, (*at, key))


PLACES = {name: [p for p in places(values) if p] for name, values in ORIGINALS.items()}


def changed(values, path, nasty, how):
    """A copy with one place replaced, removed, renamed, quoted as JSON text, or put into a list."""
    copy = json.loads(json.dumps(values))
    holder = copy
    for key in path[:-1]:
        try:
            holder = holder[key]
        except (KeyError, IndexError, TypeError):
            return copy
    if not isinstance(holder, dict | list) or not (
        path[-1] in holder
        if isinstance(holder, dict)
        else len(holder) > path[-1]
        if isinstance(path[-1], int)
        else False
    ):
        return copy
    key = path[-1]
    if how == "replace":
        holder[key] = nasty
    elif how == "remove":
        del holder[key]
    elif how == "quote":
        holder[key] = json.dumps(holder[key])
    elif how == "list":
        holder[key] = [holder[key]]
    elif isinstance(holder, dict):
        holder[str(nasty)] = holder.pop(key)
    return copy


@st.composite
def mutilated(draw, name):
    values = ORIGINALS[name]
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(PLACES[name]))
        values = changed(
            values,
            path,
            draw(NASTY),
            draw(st.sampled_from(["replace", "replace", "remove", "quote", "list", "rename"])),
        )
    return values


def check(result):
    assert isinstance(result, Request | Skip)
    if isinstance(result, Skip):
        assert isinstance(result.reason, str)
        assert result.slug
        return
    content = result.content
    assert isinstance(content, Messages | Text | TokenIds | NoPrompt), result.format
    if isinstance(content, Messages):
        assert all(isinstance(message, dict) and "role" in message for message in content.messages), (
            result.format,
            content.messages,
        )
        assert all(isinstance(tool, dict) for tool in content.tools)
    for name in ("id", "model", "session", "user", "replica"):
        assert getattr(result, name) is None or isinstance(getattr(result, name), str), name
    assert result.time is None or isinstance(result.time, float)
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in result.fields.items())
    assert all(isinstance(part, str) for part in result.namespace)
    for counts in (result.usage or Usage(),):
        assert all(
            n is None or (type(n) is int and n >= 0)
            for n in (counts.prompt, counts.cached, counts.written, counts.completion)
        )
    for times in (result.latency or Latency(),):
        assert all(t is None or isinstance(t, float | int) for t in (times.total, times.ttft))
    assert result.output is None or isinstance(result.output, Output)
    hash((result.path, result.line, result.part))


def read_all(path, text):
    path.write_text(text, "utf-8", "surrogatepass")
    try:
        for result in read([str(path)]):
            check(result)
    except (LogRefusedError, NoInputError):
        pass  # nothing in it could be read, and that was said


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_only_requests_and_skips_come_out(name, data, tmp_path):
    values = data.draw(mutilated(name))
    read_all(tmp_path / "log", "\n".join(json.dumps(value) for value in values))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cells=st.lists(
        st.lists(NASTY.map(lambda v: v if isinstance(v, str) else json.dumps(v)), min_size=3, max_size=5),
        min_size=1,
        max_size=3,
    )
)
def test_only_requests_and_skips_come_out_of_csv(cells, tmp_path):
    out = io.StringIO()
    csv.writer(out).writerows([["created_at", "request_json", "response_json"], *cells])
    read_all(tmp_path / "log", out.getvalue())


@pytest.mark.parametrize("name", FILES)
def test_cut_off_in_the_middle_keeps_what_is_whole(name, tmp_path):
    text = (SAMPLES / name).read_text("utf-8")
    read_all(tmp_path / "log", text[: len(text) * 2 // 3])


@pytest.mark.parametrize("name", FILES)
def test_each_place_may_be_missing(name, tmp_path):
    """Not drawn but all of them, for the first record."""
    first = [path for path in PLACES[name] if path[0] == 0 and len(path) < 5]
    for path in first:
        values = changed(ORIGINALS[name][:1], path, None, "remove")
        read_all(tmp_path / "log", "\n".join(json.dumps(value) for value in values))


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("team", "blue", True),
        ("prompt_tokens", 12, True),
        ("streamed", True, True),
        ("Authorization", "Basic abc", False),
        ("x-api-key", "abc", False),
        ("user_api_key", "abc", False),
        ("client_secret", "abc", False),
        ("cookie", "a=b", False),
        ("note", "sk-live-1234", False),
        ("header", "Bearer abc", False),
        ("jwt", "eyJhbGciOi", False),
        ("long", "x" * 500, False),
        ("nothing", None, False),
        ("nested", {"a": 1}, False),
    ],
)
def test_labels_leave_out_credentials_and_what_is_too_long(name, value, kept):
    assert (name in labels({name: value})) is kept
