"""Fingerprints: the same hits as the text, places that can be named, and nothing to read."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import bodies, fingerprints, logs, pipeline
from prefixlint.capture.config import RecordConfig
from prefixlint.capture.exchange import Body, Exchange
from prefixlint.capture.fingerprint import Fingerprinter, TokenizedPrompt
from prefixlint.capture.lines import LineMaker
from prefixlint.capture.tokenizing import PromptTokenizer
from prefixlint.model import Fingerprint, FingerprintSegment, Request, Skip

WORDS = [
    "marmalade",
    "lighthouse",
    "quarrel",
    "bicycle",
    "saffron",
    "thunder",
    "velvet",
    "harbour",
    "pickle",
    "window",
    "lantern",
    "orchard",
    "gravel",
    "pepper",
    "compass",
    "blanket",
    "violin",
    "cactus",
    "ferry",
    "mushroom",
    "anchor",
    "candle",
    "meadow",
    "puzzle",
    "ribbon",
    "saddle",
    "teapot",
    "umbrella",
    "walnut",
    "zeppelin",
]


def exchange(body, reply=None, *, time=1_764_400_000.0, status=200):
    made = Exchange(
        time=time,
        method="POST",
        target="/v1/chat/completions",
        request=Body(1 << 24),
        response=Body(1 << 24),
        response_headers={"content-type": "application/json"},
        status=status,
        total=0.5,
    )
    made.request.feed(json.dumps(body).encode())
    made.response.feed(json.dumps(reply or {}).encode())
    return made


def maker(**options):
    return LineMaker(RecordConfig(output="-", salt=b"a salt of this test", run="t", **options))


def sentence(source, n):
    return " ".join(source.choice(WORDS) for _ in range(n)).capitalize() + "."


def traffic(count, seed=7):
    """Conversations of several families: clocks, tools, growing histories, plain prompts, token ids, Anthropic bodies."""
    source = random.Random(seed)
    system = {name: " ".join(sentence(source, 12) for _ in range(8)) for name in ("desk", "clock", "tools", "claude")}
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"find_{word}",
                "description": sentence(source, 15),
                "parameters": {
                    "type": "object",
                    "properties": {word: {"type": "string", "description": sentence(source, 8)}},
                },
            },
        }
        for word in WORDS[:6]
    ]
    open_ = {name: [] for name in ("desk", "tools", "claude")}
    for number in range(count):
        family = source.choice(("desk", "clock", "tools", "claude", "text", "ids"))
        question = {"role": "user", "content": sentence(source, source.randint(3, 40))}
        answer = sentence(source, 10)
        reply = {
            "id": f"r{number}",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100 + number, "completion_tokens": 12},
        }
        if family == "text":
            yield {"model": "m", "prompt": system["desk"] + sentence(source, 5)}, None
        elif family == "ids":
            ids = list(range(1000, 1000 + source.randint(20, 200))) + [source.randint(0, 5000) for _ in range(30)]
            yield {"model": "m", "prompt": ids}, None
        elif family == "clock":
            now = f"Time: 2026-03-0{source.randint(1, 9)} {source.randint(10, 23)}:{source.randint(10, 59)}\n"
            yield {"model": "m", "messages": [{"role": "system", "content": now + system["clock"]}, question]}, reply
        else:
            histories = open_[family]
            if not histories or source.random() < 0.3:
                histories.append([])
            history = source.choice(histories)
            history.append(question)
            body = {"model": "m", "messages": list(history)}
            if family == "claude":
                body = {
                    "model": "claude-x",
                    "max_tokens": 99,
                    "system": [{"type": "text", "text": system["claude"]}],
                    **body,
                }
                body["model"] = "claude-x"
                reply = {
                    "type": "message",
                    "id": f"m{number}",
                    "content": [{"type": "text", "text": answer}],
                    "usage": {"input_tokens": 5, "output_tokens": 3},
                }
            else:
                body["messages"].insert(0, {"role": "system", "content": system[family]})
            if family == "tools":
                body["tools"] = source.sample(tools, 6) if source.random() < 0.3 else tools
            history.append({"role": "assistant", "content": answer})
            yield body, reply


def write_both(folder, requests, **options):
    tokenizer = PromptTokenizer(offline=True)
    with_text = maker(**options)
    without = maker(
        fingerprinter=Fingerprinter(b"another salt", tokenize=tokenizer, tokenizer=tokenizer.name), **options
    )
    text, hashed = folder / "text.jsonl", folder / "hashed.jsonl"
    with text.open("wb") as a, hashed.open("wb") as b:
        for number, (body, reply) in enumerate(requests):
            a.write(with_text.make(exchange(body, reply, time=1_764_400_000.0 + number)))
            b.write(without.make(exchange(body, reply, time=1_764_400_000.0 + number)))
    return text, hashed


def hits(path):
    lines = []
    pipeline.analyze([str(path)], pipeline.Options(offline=True), watch=pipeline.Watch(on_request=lines.append))
    return [(line.line, line.part, line.prompt_tokens, {k: v[0] for k, v in line.engines.items()}) for line in lines]


@pytest.mark.parametrize(("count", "with_output"), [(1000, True), (150, False)])
def test_the_same_hits_per_request_as_the_text(tmp_path, count, with_output):
    text, hashed = write_both(tmp_path, traffic(count), with_output=with_output)
    expected, found = hits(text), hits(hashed)
    assert len(expected) == count
    assert sum(engines["sglang"] > 0 for *_, engines in expected) > 0.8 * count
    assert found == expected


def test_nothing_of_the_prompts_can_be_read(tmp_path):
    requests = list(traffic(120, seed=3))
    _, hashed = write_both(tmp_path, requests, with_output=True)
    data = hashed.read_text().lower()
    own = {
        "role",
        "content",
        "messages",
        "tools",
        "user",
        "system",
        "prompt",
        "model",
        "function",
        "description",
        "name",
    }
    own |= {"assistant", "parameters", "text", "type", "object", "string", "time", "properties", "claude", "m"}
    words = set(re.findall(r"[^\W_]{2,}", json.dumps(requests).lower()))
    assert {"marmalade", "find", "2026"} <= words
    read = set(re.findall(r"[^\W_]{2,}", re.sub(r'"(id|time|conversation|ttft_s|total_s)":[^,}]*', "", data)))
    measured = {word for word in words if word.isdigit() or re.fullmatch(r"[rm]\d+", word)}
    assert (
        not (words & read)
        - own
        - measured
        - {
            "max",
            "index",
            "message",
            "choices",
            "finish",
            "reason",
            "stop",
            "usage",
            "id",
            "input",
            "output",
            "completion",
            "tokens",
        }
    )
    for word in WORDS:
        assert word not in data


def test_analyze_names_message_and_position(tmp_path):
    system = "Always be polite and short. " * 20
    requests = [
        (
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": f"It is 09:{n:02d} now. {system}"},
                    {"role": "user", "content": "Hi"},
                ],
            },
            None,
        )
        for n in range(10, 40)
    ]
    text, hashed = write_both(tmp_path, requests)
    places, lines = [], ([], [])
    for path, seen in zip((text, hashed), lines, strict=True):
        watch = pipeline.Watch(on_request=seen.append)
        result = pipeline.analyze([str(path)], pipeline.Options(offline=True), watch=watch)
        places.append([(spot.path, spot.char) for family in result.families for spot in family.spans][:1])
    assert places[0] == places[1] == [("messages[0].content", places[0][0][1])]
    assert places[0][0][1] in (9, 10)
    expected, found = ([(line.diverged_path, line.diverged_char) for line in seen] for seen in lines)
    assert [path for path, _ in found] == [path for path, _ in expected]
    assert found[0] == expected[0] == (None, None)
    # one mark in 256 is equal by chance
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= len(found) - 2


def test_requests_with_one_system_text_are_one_family(tmp_path):
    system = "You are the clerk of a very small library with many shelves. Answer briefly."
    requests = [
        (
            {
                "model": "m",
                "messages": [{"role": "system", "content": system}, {"role": "user", "content": f"{n} lichens"}],
            },
            None,
        )
        for n in range(8)
    ]
    for path in write_both(tmp_path, requests):
        (family,) = pipeline.analyze([str(path)], pipeline.Options(offline=True)).families
        assert family.requests == 8


def read(path):
    return list(logs.read([str(path)]))


def test_the_reader_gives_segments_in_wire_order(tmp_path):
    body = {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "What is this?"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "A walnut."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Looks.",
                    "parameters": {"type": "object", "properties": {"walnut": {"type": "string"}}},
                },
            }
        ],
        "model": "m",
        "cache_salt": "tenant",
        "user": "someone@example.org",
    }
    path = tmp_path / "log.jsonl"
    path.write_bytes(maker(fingerprinter=Fingerprinter(b"s")).make(exchange(body)))
    (request,) = read(path)
    assert isinstance(request, Request)
    content = request.content
    assert isinstance(content, Fingerprint)
    assert [(s.path, s.role) for s in content.segments] == [
        ("tools[0].function.name", "tool"),
        ("tools[0].function.description", "tool"),
        ("tools[0].function.parameters", "tool"),
        ("messages[0].content", "system"),
        ("messages[1].content[0].text", "user"),
        ("messages[2].tool_calls[0].id", "assistant"),
        ("messages[2].tool_calls[0].function.name", "assistant"),
        ("messages[2].tool_calls[0].function.arguments", "assistant"),
        ("messages[3].tool_call_id", "tool"),
        ("messages[3].content", "tool"),
    ] or "messages[2].tool_calls[0]" in [s.path for s in content.segments]
    assert content.tokenizer is None
    assert len(content.ids) >= len(content.segments)
    assert request.model == "m"
    assert request.namespace[0].startswith("cache_salt=")
    assert "tenant" not in path.read_text()
    assert "example" not in path.read_text()
    assert "walnut" not in path.read_text()


def fingerprint_of(body, grain=1, salt=b"s"):
    made = Fingerprinter(salt, grain=grain).make(body)
    segments = [FingerprintSegment(r, p, d, c, fingerprints.read(m)) for p, r, c, d, m in made["segments"]]
    return Fingerprint(segments, made["salt"], (), None, grain)


texts = st.text(st.sampled_from("ab \n😀é"), max_size=60)
conversations = st.lists(texts, min_size=1, max_size=4).map(
    lambda contents: {"messages": [{"role": "user", "content": content} for content in contents]}
)


@settings(max_examples=150, deadline=None)
@given(conversations, conversations, st.sampled_from([1, 4, 16, 100]))
def test_the_first_difference_is_that_of_the_text(a, b, grain):
    expected = bodies.first_difference(a, b)
    one, other = fingerprint_of(a, grain), fingerprint_of(b, grain)
    found = fingerprints.first_difference(one.segments, other.segments, grain)
    assert (found is None) == (expected is None)
    if expected is None or found is None:
        return
    assert found.path.removesuffix(".role") == expected.path or expected.path.endswith(".role")
    if found.path == expected.path and grain == 1:
        # one mark in 256 is equal by chance
        assert 0 <= found.char - expected.char <= 2
    elif found.path == expected.path:
        assert 0 <= expected.char - found.char < grain


@given(st.binary(max_size=200))
def test_marks_are_written_and_read(data):
    text = fingerprints.write(data)
    assert fingerprints.read(text) == data
    assert not re.search(r"[\w\"\\]", text)


@pytest.mark.parametrize("text", ["abc", "!", "é!", "!!a!", "00", '"!'])
def test_other_marks_are_refused(text):
    with pytest.raises(ValueError):
        fingerprints.read(text)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=150), st.lists(st.integers(0, 2**32 - 1), max_size=150))
@settings(max_examples=50, deadline=None)
def test_tokens_are_equal_exactly_as_far_as_the_ids(a, b):
    made = Fingerprinter(b"s", tokenize=lambda body, _output, _time: [TokenizedPrompt(body["ids"])])
    ids = [fingerprints.token_ids(fingerprints.read(made.make({"ids": x})["prompts"][0])) for x in (a, b)]
    assert list(map(len, ids)) == [len(a), len(b)]
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert ids[0][:same] == ids[1][:same]
    assert all(x != y for x, y in zip(ids[0][same:], ids[1][same:], strict=False))


def test_two_salts_have_nothing_in_common():
    body = {"messages": [{"role": "user", "content": "the same words " * 30}]}
    one, other = (fingerprint_of(body, salt=salt) for salt in (b"one", b"other"))
    assert one.salt_id != other.salt_id
    assert one.segments[0].digest != other.segments[0].digest
    same = sum(a == b for a, b in zip(one.segments[0].marks, other.segments[0].marks, strict=True))
    assert same < 20
    assert fingerprints.place(one, other) is None


def test_equal_units_at_other_places_have_other_marks():
    (segment,) = fingerprint_of({"messages": [{"role": "user", "content": "a" * 2000}]}).segments
    assert max(segment.marks.count(byte) for byte in set(segment.marks)) < 30


def test_the_store_of_blocks_is_bounded_and_does_not_change_the_result(monkeypatch):
    from prefixlint.capture import fingerprint

    body = {"messages": [{"role": "user", "content": "abc " * 500}]}
    expected = Fingerprinter(b"s").make(body)
    monkeypatch.setattr(fingerprint, "_BLOCKS_KEPT", 3)
    made = Fingerprinter(b"s")
    assert made.make(body) == expected
    assert len(made._blocks) <= 3
    assert made.make(body) == expected


@pytest.mark.parametrize(
    "held",
    [
        {},
        {"segments": 5, "salt": "x"},
        {"segments": [["p", "user", 5]], "salt": "x"},
        {"segments": [["p", "user", 5, "x", "not marks"]], "salt": "x"},
        {"segments": [], "salt": "x", "prompts": ["!!"]},
        {"segments": [], "salt": "x", "prompts": [7]},
    ],
)
def test_a_damaged_fingerprint_is_skipped_with_its_reason(tmp_path, held):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"prefixlint_record": 1, "status": 200, "fingerprint": held}) + "\n")
    good = maker(fingerprinter=Fingerprinter(b"s")).make(exchange({"model": "m", "prompt": "x"}))
    path.write_bytes(path.read_bytes() + good)
    skip, request = read(path)
    assert isinstance(skip, Skip)
    assert skip.slug == "broken-fingerprint"
    assert isinstance(request, Request)


def test_estimates_where_no_tokenizer_was_given(tmp_path):
    made = maker(fingerprinter=Fingerprinter(b"s"))
    path = tmp_path / "log.jsonl"
    shared = "The shelf of the lighthouse is behind the stairs. " * 40
    with path.open("wb") as file:
        for n in range(20):
            file.write(
                made.make(
                    exchange(
                        {
                            "model": "m",
                            "messages": [
                                {"role": "system", "content": shared},
                                {"role": "user", "content": f"{n} apples"},
                            ],
                        }
                    )
                )
            )
    found = hits(path)
    tokens = found[-1][2]
    assert 400 < tokens < 600
    assert found[0][3]["sglang"] == 0
    assert all(tokens - 10 < engines["sglang"] < tokens for *_, engines in found[1:])
