"""OpenTelemetry in its dialects, OpenInference and Phoenix: joins, spellings, what surrounds model calls."""

import json
from pathlib import Path

import pytest

from prefixlint.logs import _otlp, read
from prefixlint.model import NoPrompt, Request, Text

SAMPLES = Path(__file__).parent.parent / "fixtures" / "logs" / "samples"
SYSTEM = "You are the desk clerk of the Harbour Street library. Answer briefly, name the shelf, and never guess a call number."
SPANS = [
    "otel_genai_spans_v1_37.json",
    "otel_openllmetry_spans.json",
    "openinference_otlp_spans.json",
    "otel_genai_span_events_v1_27.json",
]


def document(name):
    return json.loads((SAMPLES / name).read_text("utf-8"))


def spans_of(value):
    return value["resourceSpans"][0]["scopeSpans"][0]["spans"]


def wrapped(*spans):
    return {
        "resourceSpans": [
            {"resource": {"attributes": []}, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}
        ]
    }


@pytest.fixture
def load(tmp_path):
    def load(*values, text=None, **options):
        path = tmp_path / "log"
        path.write_text("\n".join(json.dumps(v) for v in values) + "\n" if text is None else text, "utf-8")
        return list(read([str(path)], **options))

    return load


def facts(found):
    return [(r.format, r.content, r.time, r.model, r.session, r.user, r.usage, r.latency, r.output) for r in found]


def canonical(name):
    return facts(read([str(SAMPLES / name)]))


def snake_keys(value):
    """OTLP as protobuf's own JSON printer writes it with the original field names."""
    if isinstance(value, dict):
        return {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): snake_keys(v) for k, v in value.items()}
    return [snake_keys(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize(
    "form", ["one object a line", "bare spans", "snake", "older scopes", "tempo", "resource spans"]
)
def test_spans_in_other_wrappings(load, name, form):
    value = document(name)
    if form == "one object a line":
        found = load(*(wrapped(span) for span in spans_of(value)))
    elif form == "bare spans":
        found = load(*spans_of(value))
    elif form == "snake":
        found = load(text=json.dumps(snake_keys(value), indent=1))
    elif form == "older scopes":
        found = load({"resourceSpans": [{"instrumentationLibrarySpans": [{"spans": spans_of(value)}]}]})
    elif form == "tempo":
        found = load({"batches": value["resourceSpans"]})
    else:
        found = load(*value["resourceSpans"])
    assert facts(found) == canonical(name)


def plain(value):
    """The Python value of an OTLP attribute."""
    ((kind, held),) = value.items()
    return int(held) if kind == "intValue" else held


@pytest.mark.parametrize("name", SPANS)
def test_spans_of_the_console_exporter(load, name):
    shown = [
        {
            "name": span["name"],
            "context": {"trace_id": "0x" + span["traceId"], "span_id": span["spanId"], "trace_state": "[]"},
            "kind": "SpanKind.CLIENT",
            "start_time": f"2025-03-03T{t}Z",
            "end_time": f"2025-03-03T{e}Z",
            "attributes": {a["key"]: plain(a["value"]) for a in span["attributes"]},
            "events": [
                {
                    "name": ev["name"],
                    "timestamp": "x",
                    "attributes": {a["key"]: plain(a["value"]) for a in ev["attributes"]},
                }
                for ev in span.get("events", [])
            ],
        }
        for span, t, e in zip(
            spans_of(document(name)),
            ["09:00:00.000000", "09:00:04.200000", "09:00:31.000000", "09:01:15.500000"],
            ["09:00:00.840000", "09:00:04.860000", "09:00:31.550000", "09:01:15.990000"],
            strict=True,
        )
    ]
    assert facts(load(*shown)) == canonical(name)
    assert facts(load(text="\n".join(json.dumps(span, indent=4) for span in shown))) == canonical(name)


def test_span_event_sample():
    found = list(read([str(SAMPLES / "otel_genai_span_events_v1_27.json")]))
    assert [r.line for r in found] == [1, 2, 3, 4]
    assert {r.format for r in found} == {"otel-genai"}
    assert [[m["role"] for m in r.content.messages] for r in found][1] == ["system", "user", "assistant", "tool"]
    assert [(r.usage.prompt, r.usage.cached, r.usage.completion) for r in found] == [
        (212, None, 24),
        (268, None, 19),
        (209, None, 14),
        (301, None, 12),
    ]
    assert [r.latency.total for r in found] == pytest.approx([0.84, 0.66, 0.55, 0.49])


# --- events of 1.28, joined to their spans


def events():
    spans, logs = ((SAMPLES / "otel_genai_events_v1_28.jsonl").read_text("utf-8")).splitlines()
    return json.loads(spans), json.loads(logs)


def check_events(found):
    found = sorted(found, key=lambda r: r.time)
    assert [r.time for r in found] == [1740992400.0, 1740992404.2, 1740992431.0, 1740992475.5]
    assert [[m["role"] for m in r.content.messages] for r in found] == [
        ["system", "user"],
        ["system", "user", "assistant", "tool"],
        ["system", "user"],
        ["system", "user", "assistant", "tool", "assistant", "user"],
    ]
    assert all(r.content.messages[0]["content"] == SYSTEM for r in found)
    assert [(r.usage.prompt, r.usage.completion) for r in found] == [(212, 24), (268, 19), (209, 14), (301, 12)]
    assert found[1].content.messages[2]["tool_calls"][0]["function"]["name"] == "find_book"
    assert found[1].content.messages[3]["tool_call_id"] == "call_lichen01"
    assert found[3].output.text == "Held under your card until Thursday noon."


@pytest.mark.parametrize("order", ["spans first", "logs first", "one by one", "bare records"])
def test_events_join_their_spans(load, order):
    spans, logs = events()
    records = logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    if order == "spans first":
        found = load(spans, logs)
    elif order == "logs first":
        found = load(logs, spans)
    elif order == "one by one":
        one = [{"resourceLogs": [{"scopeLogs": [{"logRecords": [r]}]}]} for r in records]
        found = load(*one[:7], spans, *one[7:])
    else:
        found = load(*spans_of(spans), *records)
    check_events(found)
    places = [(r.line, r.part) for r in found]
    assert len(set(places)) == 4


def test_events_in_snake_case_and_as_one_list(load):
    spans, logs = events()
    check_events(load(text=json.dumps([snake_keys(spans), snake_keys(logs)], indent=1)))


def test_events_without_their_spans_keep_the_messages(load):
    _, logs = events()
    found = load(logs)
    assert [len(r.content.messages) for r in found] == [2, 4, 2, 6]
    assert {r.usage for r in found} == {None}


def test_spans_whose_content_was_not_captured(load):
    spans, _ = events()
    found = load(spans)
    assert {r.content for r in found} == {NoPrompt("otel-no-content")}
    assert [r.usage.prompt for r in found] == [212, 268, 209, 301]


# --- 1.37 and later


def test_structured_attributes(load):
    value = document("otel_genai_spans_v1_37.json")

    def any_value(held):
        if isinstance(held, dict):
            return {"kvlistValue": {"values": [{"key": k, "value": any_value(v)} for k, v in held.items()]}}
        if isinstance(held, list):
            return {"arrayValue": {"values": [any_value(v) for v in held]}}
        if isinstance(held, bool):
            return {"boolValue": held}
        return {"intValue": str(held)} if isinstance(held, int) else {"stringValue": held}

    for span in spans_of(value):
        for attribute in span["attributes"]:
            held = attribute["value"].get("stringValue", "")
            if held[:1] in ("[", "{"):
                attribute["value"] = any_value(json.loads(held))
    assert facts(load(value)) == canonical("otel_genai_spans_v1_37.json")


@pytest.mark.parametrize("where", ["log record", "span event"])
def test_operation_details_event(load, where):
    value = document("otel_genai_spans_v1_37.json")
    long = ("gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.output.messages", "gen_ai.tool.definitions")
    records = []
    for span in spans_of(value):
        moved = [a for a in span["attributes"] if a["key"] in long]
        span["attributes"] = [a for a in span["attributes"] if a["key"] not in long]
        name = "gen_ai.client.inference.operation.details"
        if where == "span event":
            span["events"] = [{"name": name, "timeUnixNano": span["startTimeUnixNano"], "attributes": moved}]
        else:
            records.append(
                {
                    "timeUnixNano": span["endTimeUnixNano"],
                    "eventName": name,
                    "attributes": moved,
                    "traceId": span["traceId"],
                    "spanId": span["spanId"],
                }
            )
    logs = [{"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}] if records else []
    assert facts(load(*logs, value)) == canonical("otel_genai_spans_v1_37.json")


def attribute(key, value):
    return {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


def span_with(**attributes):
    listed = [attribute(k.replace("__", "."), v) for k, v in attributes.items()]
    return {
        "traceId": "a",
        "spanId": "b",
        "name": "s",
        "startTimeUnixNano": "1740992400000000000",
        "endTimeUnixNano": "1740992401000000000",
        "attributes": listed,
    }


def test_agents_tools_and_other_spans_are_left_out(load):
    agent = span_with(gen_ai__operation__name="invoke_agent", gen_ai__input__messages='[{"role": "user", "parts": []}]')
    tool = span_with(gen_ai__operation__name="execute_tool")
    http = span_with(http__request__method="POST")
    call = spans_of(document("otel_genai_spans_v1_37.json"))[0]
    found = load(wrapped(agent, tool, http, call))
    assert [getattr(r, "slug", None) for r in found] == ["not-a-request", "not-a-request", "not-a-request", None]


def test_time_to_first_chunk_and_reasoning_parts(load):
    asked = [
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "yes"}]},
        "bare",
    ]
    span = span_with(gen_ai__input__messages=json.dumps(asked), gen_ai__response__time_to_first_chunk="0.25")
    (found,) = load(span)
    assert found.content.messages == [
        {"role": "assistant", "reasoning_content": "hm", "content": "yes"},
        {"role": "user", "content": "bare"},
    ]
    assert (found.latency.total, found.latency.ttft) == (1.0, 0.25)


def test_cached_tokens_left_out_of_the_input_count_are_added(load):
    span = span_with(
        gen_ai__input__messages="[]",
        gen_ai__usage__input_tokens=52,
        gen_ai__usage__cache_read__input_tokens=160,
        gen_ai__usage__cache_creation__input_tokens=8,
    )
    (found,) = load(span)
    assert (found.usage.prompt, found.usage.cached, found.usage.written) == (220, 160, 8)


# --- OpenLLMetry


def test_openllmetry_blocks_workflows_and_switched_off_content(load):
    blocks = json.dumps([{"type": "text", "text": "hi"}])
    call = span_with(
        llm__request__type="chat",
        **{
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": blocks,
            "gen_ai.completion.0.content": "yo",
            "gen_ai.completion.0.role": "assistant",
        },
    )
    flow = span_with(traceloop__span__kind="workflow", traceloop__workflow__name="w")
    bare = span_with(llm__request__type="chat", gen_ai__usage__prompt_tokens=7)
    text = span_with(
        llm__request__type="completion", **{"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Once"}
    )
    found = load(wrapped(call, flow, bare, text))
    assert found[0].content.messages == [{"role": "user", "content": "hi"}]
    assert found[0].output.text == "yo"
    assert found[1].slug == "not-a-request"
    assert (found[2].content, found[2].usage.prompt) == (NoPrompt("openllmetry-no-content"), 7)
    assert found[3].content == Text("Once")


def test_openllmetry_has_ten_messages_and_more_in_order(load):
    many = {f"gen_ai.prompt.{n}.{k}": v for n in range(12) for k, v in (("role", "user"), ("content", f"m{n}"))}
    (found,) = load(span_with(llm__request__type="chat", **dict(sorted(many.items()))))
    assert [m["content"] for m in found.content.messages] == [f"m{n}" for n in range(12)]


# --- OpenInference and Phoenix


def test_openinference_takes_tools_and_messages_from_the_logged_body(load):
    value = document("openinference_otlp_spans.json")
    for span in spans_of(value):
        span["attributes"] = [
            a for a in span["attributes"] if not a["key"].startswith(("llm.tools", "llm.input_messages"))
        ]
    found, full = load(value), canonical("openinference_otlp_spans.json")
    assert [r.content for r in found] == [content for _, content, *_ in full]


def test_openinference_hidden_inputs_and_other_kinds(load):
    value = document("openinference_otlp_spans.json")
    spans = spans_of(value)
    spans[0]["attributes"] = [
        a | {"value": {"stringValue": "__REDACTED__"}} if a["key"].endswith(("message.content", "input.value")) else a
        for a in spans[0]["attributes"]
    ]
    spans[1]["attributes"][0]["value"]["stringValue"] = "CHAIN"
    found = load(value)
    assert (found[0].content, found[0].usage.prompt) == (NoPrompt("openinference-hidden-inputs"), 212)
    assert found[1].slug == "not-a-request"


def test_openinference_parts_with_an_image(load):
    prefix = "llm.input_messages.0.message."
    attributes = {
        "openinference.span.kind": "LLM",
        prefix + "role": "user",
        prefix + "contents.0.message_content.type": "text",
        prefix + "contents.0.message_content.text": "what?",
        prefix + "contents.1.message_content.type": "image",
        prefix + "contents.1.message_content.image.image.url": "data:image/png;base64,AA",
    }
    (found,) = load(span_with(**attributes))
    parts = found.content.messages[0]["content"]
    assert parts == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
    ]


def phoenix_rows():
    return [json.loads(line) for line in (SAMPLES / "phoenix_spans_dataframe.jsonl").read_text("utf-8").splitlines()]


def nested(row):
    """The row as Phoenix's REST API gives it."""
    tree = {}
    for name, held in row.items():
        if name.startswith("attributes."):
            tree[name.removeprefix("attributes.")] = held
    return {
        "id": "x",
        "name": row["name"],
        "context": {"trace_id": row["context.trace_id"], "span_id": row["context.span_id"]},
        "span_kind": row["span_kind"],
        "start_time": row["start_time"],
        "end_time": row["end_time"],
        "attributes": tree,
    }


@pytest.mark.parametrize("form", ["rest", "rest page", "strings", "nested messages"])
def test_phoenix_forms(load, form):
    rows = phoenix_rows()
    if form == "rest":
        found = load(*map(nested, rows))
    elif form == "rest page":
        found = load({"data": [nested(row) for row in rows], "next_cursor": None})
    elif form == "strings":
        names = ("attributes.llm.input_messages", "attributes.llm.tools")
        found = load(*(row | {name: json.dumps(row[name]) for name in names} for row in rows))
    else:
        for row in rows:
            for message in row["attributes.llm.input_messages"]:
                inner = {k.removeprefix("message."): message.pop(k) for k in list(message)}
                message["message"] = inner
        found = load(*rows)
    assert facts(found) == canonical("phoenix_spans_dataframe.jsonl")


def test_phoenix_spans_of_other_kinds(load):
    row = phoenix_rows()[0]
    found = load(row, row | {"span_kind": "CHAIN"})
    assert [type(found[0]), found[1].slug] == [Request, "not-a-request"]


# --- the tree builder


def test_nest_closes_holes_and_lets_branches_win():
    assert _otlp.nest({"a.0.b": 1, "a.999999999.b": 2, "c": 3, "c.d": 4}, "") == {
        "a": [{"b": 1}, {"b": 2}],
        "c": {"d": 4},
    }


def test_nest_stops_at_hostile_depth():
    deep = ".".join("x" * 5000)
    assert _otlp.nest({deep: 1, "y": 2}, "") == {"y": 2}
    value = 1
    for _ in range(900):
        value = {"k.v": value}
    assert _otlp.nest({"a": value}, "")["a"]


def test_typed_values_stop_at_hostile_depth():
    value = {"stringValue": "x"}
    for _ in range(900):
        value = {"arrayValue": {"values": [value]}}
    assert isinstance(_otlp.typed(value), list)
