"""Whatever a file holds: what is readable is read, the rest is named with its line, and nothing else is raised."""

import gzip
import io
import json
import os
import pickle
import random
import threading
import zlib
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixlint.errors import LogRefusedError, NoInputError, PrefixlintError, UsageError
from prefixlint.logs import _io, _records, format_names, read
from prefixlint.model import Request, Skip


def line(text, **more):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], **more}).encode()


GOOD = line("good")


def prompts(items):
    return [item.content.messages[-1]["content"] for item in items if isinstance(item, Request)]


def skips(items):
    return [(item.line, item.slug) for item in items if isinstance(item, Skip)]


@pytest.fixture
def log(tmp_path):
    """Write bytes to a file and read it as far as it goes; gives requests and skips."""

    def write_and_read(data, name="log", **options):
        path = tmp_path / name
        path.write_bytes(data)
        return list(read([str(path)], **options))

    return write_and_read


BAD_LINES = {
    "truncated": (GOOD[:-20], "invalid-json"),
    "not-json": (b"{oops}", "invalid-json"),
    "invalid-utf8": (GOOD.replace(b"good", b"g\xff\xfed"), "invalid-utf8"),
    "deep": (b'{"messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested-too-deep"),
    "deep-and-open": (b'{"messages":' + b"[" * 10_000, "nested-too-deep"),
    "number": (b"17", "not-a-request"),
    "null": (b"null", "not-a-request"),
    "text": (b"Traceback (most recent call last):", "invalid-json"),
    "nul-bytes": (b"\0" * 64, "invalid-json"),
    "huge-number": (b'{"n": ' + b"9" * 10_000 + b', "x": nope}', "invalid-json"),
    "other-object": (b'{"level": "info", "text": "started"}', "unknown-format"),
    "empty-messages": (b'{"model": "m", "messages": []}', "unknown-format"),
    "odd-messages": (b'{"model": "m", "messages": ["a", 1, null]}', "unknown-format"),
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_line_is_named_and_the_rest_is_read(log, bad):
    data, slug = BAD_LINES[bad]
    found = log(b"\n".join([line("a"), b"", data, line("b"), line("c")]))
    assert prompts(found) == ["a", "b", "c"]
    assert skips(found) == [(3, slug)]


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_bad_first_line_does_not_hide_the_log(log, bad):
    data, slug = BAD_LINES[bad]
    found = log(data + b"\n" + line("a") + b"\n" + line("b") + b"\n")
    assert prompts(found) == ["a", "b"]
    if bad not in ("text", "nul-bytes"):  # text before JSON is noise, not damage
        assert skips(found) == [(1, slug)]


@pytest.mark.parametrize(
    "bad", [name for name in BAD_LINES if name not in ("number", "null", "text")]
)  # text alone is prompts
def test_a_log_of_nothing_but_bad_lines_is_refused(log, bad):
    with pytest.raises(LogRefusedError) as caught:
        log(BAD_LINES[bad][0] + b"\n" + BAD_LINES[bad][0] + b"\n")
    assert "log" in caught.value.message


def test_a_truncated_last_line_loses_only_itself(log):
    found = log(line("a") + b"\n" + line("b") + b"\n" + GOOD[:30])
    assert prompts(found) == ["a", "b"]
    assert skips(found) == [(3, "invalid-json")]
    assert "cut off" in found[-1].reason


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n\n", b"\r\n \r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n\n", b"  "])
def test_line_ends_and_byte_order_marks(log, start, end):
    found = log(start + line("a") + end + line("b") + end)
    assert prompts(found) == ["a", "b"]
    assert not skips(found)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_as_windows_shells_write_it(log, encoding):
    text = (line("grüße") + b"\n" + line("日本")).decode()
    mark = {"utf-16": "", "utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}[encoding]
    assert prompts(log((mark + text).encode(encoding))) == ["grüße", "日本"]


def test_lone_surrogates_keep_their_text(log):
    found = log(b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud800b"}]}\n' + GOOD)
    assert prompts(found) == ["a\ud800b", "good"]


def test_nan_and_raw_control_characters_are_read_as_python_wrote_them(log):
    found = log(line("x", temperature=float("nan")) + b"\n" + line("tab").replace(b"tab", b"t\tb\x01"))
    assert prompts(found) == ["x", "t\tb\x01"]


def test_the_last_of_duplicate_keys_wins_as_in_servers(log):
    found = log(b'{"model": "a", "messages": [{"role": "user", "content": "x", "content": "y"}], "model": "b"}')
    assert prompts(found) == ["y"]
    assert found[0].model == "b"


def test_numbers_as_strings(log):
    row = {
        "timestamp": "1740992400.5",
        "latency_ms": "840",
        "request": {"model": "m", "messages": [{"role": "user", "content": "x"}], "temperature": "0"},
        "response": {"choices": [], "usage": {"prompt_tokens": "212", "prompt_tokens_details": {"cached_tokens": "8"}}},
    }
    request = log(json.dumps(row).encode())[0]
    assert request.time == 1740992400.5
    assert request.latency.total == pytest.approx(0.84)
    assert (request.usage.prompt, request.usage.cached) == (212, 8)


@pytest.mark.parametrize("odd", [None, True, -5, "soon", [], {}, float("inf"), 10**30, "", "9" * 5000])
@pytest.mark.parametrize("key", ["timestamp", "latency_ms", "usage", "session_id", "response", "metadata", "id"])
def test_values_of_the_wrong_kind_are_unknown_and_never_fatal(log, key, odd):
    row = {key: odd, "request": {"model": "m", "messages": [{"role": "user", "content": "x"}]}}
    found = log(json.dumps(row).encode() + b"\n" + GOOD)
    assert prompts(found) == ["x", "good"]
    assert found[0].usage is None
    assert found[0].time is None or found[0].time >= 0


def test_a_line_of_200_megabytes_is_read_between_its_neighbours(log):
    long = line("x" * 200_000_000)
    found = log(line("a") + b"\n" + long + b"\n" + line("b"))
    assert [len(text) for text in prompts(found)] == [1, 200_000_000, 1]


def test_a_line_over_the_limit_is_skipped_and_the_next_is_read(log, monkeypatch):
    monkeypatch.setattr(_records, "MAX_LINE", 4096)
    found = log(line("a") + b"\n" + line("x" * 3_000_000) + b"\n" + line("b"))
    assert prompts(found) == ["a", "b"]
    assert skips(found) == [(2, "line-too-long")]


DOCUMENT = [json.loads(line(text)) for text in "abc"]


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_a_whole_file_list_numbers_its_records(log, indent):
    found = log(json.dumps(DOCUMENT, indent=indent).encode())
    assert prompts(found) == ["a", "b", "c"]
    assert [item.line for item in found] == [1, 2, 3]


def test_a_list_with_one_element_a_line(log):
    found = log(b"[\n" + b",\n".join(map(orjson.dumps, DOCUMENT)) + b"\n]\n")
    assert prompts(found) == ["a", "b", "c"]


@pytest.mark.parametrize("indent", [None, 2])
def test_one_object_is_one_request(log, indent):
    found = log(json.dumps(DOCUMENT[0], indent=indent).encode())
    assert prompts(found) == ["a"]
    assert (found[0].line, found[0].part) == (1, 0)


def test_pretty_printed_objects_one_after_the_other(log):
    found = log("\n".join(json.dumps(one, indent=2) for one in DOCUMENT).encode())
    assert prompts(found) == ["a", "b", "c"]
    assert [item.line for item in found] == [1, 2, 3]


def test_a_list_of_messages_is_one_request(log):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert prompts(log(json.dumps(messages, indent=1).encode())) == ["u"]
    assert prompts(log(json.dumps(messages).encode() + b"\n" + json.dumps(messages).encode())) == ["u", "u"]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_that_is_cut_off_gives_what_stands_before_the_cut(log, indent):
    data = json.dumps(DOCUMENT, indent=indent).encode()
    found = log(data[: data.rindex(b'"c"')] if indent else b"[" + b",\n".join(map(orjson.dumps, DOCUMENT))[:-9])
    assert prompts(found) == ["a", "b"]
    assert [slug for _, slug in skips(found)] == ["invalid-json"]


def test_a_document_that_is_not_utf8_says_so(log):
    found = log(json.dumps(DOCUMENT, indent=1).encode().replace(b'"b"', b'"\xff"'))
    assert len(prompts(found)) == 3
    assert ("invalid-utf8") in [slug for _, slug in skips(found)]


def test_a_document_nested_too_deep_is_refused(log):
    with pytest.raises(LogRefusedError) as caught:
        log(b"[\n" + b"[" * 10_000 + b"]" * 10_000 + b"\n]")
    assert caught.value.slug == "nested-too-deep"


def test_two_formats_in_one_file(log):
    claude = {"model": "claude-x", "max_tokens": 5, "system": "s", "messages": [{"role": "user", "content": "c"}]}
    trace = {"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}
    mixed = [line("a"), json.dumps(claude).encode(), json.dumps(trace).encode(), line("b")]
    found = log(b"\n".join(mixed * 2))
    assert [item.format for item in found] == ["openai-chat", "anthropic-messages", "mooncake", "openai-chat"] * 2


# -- compression ------------------------------------------------------------------------------------------------------


def zstd(data):
    from backports import zstd as library

    return library.compress(data)


NOISE = random.Random(7)
MANY = b"".join(line(f"n{number} {NOISE.randbytes(40).hex()}") + b"\n" for number in range(4000))
PACKED = {"gzip": gzip.compress, "zstd": zstd}


@pytest.mark.parametrize("pack", PACKED)
def test_compressed_logs_with_several_members(log, pack):
    data = b"".join(PACKED[pack](line(text) + b"\n") for text in ("a", "b", "c"))
    assert prompts(log(data)) == ["a", "b", "c"]


def test_thousands_of_tiny_members(log):
    assert prompts(log(b"".join(gzip.compress(line(str(n)) + b"\n") for n in range(3000)))) == [
        str(n) for n in range(3000)
    ]


def test_gzip_in_gzip(log):
    assert prompts(log(gzip.compress(gzip.compress(GOOD)))) == ["good"]


def test_zero_padding_behind_gzip_is_no_damage(log):
    assert not skips(log(gzip.compress(GOOD + b"\n") + b"\0" * 512))


@pytest.mark.parametrize("pack", PACKED)
def test_a_truncated_archive_gives_what_is_before_the_cut(log, pack):
    data = PACKED[pack](MANY)
    found = log(data[: len(data) // 2])
    assert len(prompts(found)) > 1000
    assert skips(found)[-1][1] == "broken-stream"


def inflate_into(whole, data):
    inflate = zlib.decompressobj(wbits=31)
    for value in data:
        whole += inflate.decompress(bytes((value,)))


def is_request(data):
    try:
        value = json.loads(data, strict=False)
        return isinstance(value["messages"], list) and all("role" in one for one in value["messages"])
    except (ValueError, TypeError, KeyError):
        return False


def test_damaged_gzip_gives_every_line_before_the_damage(log):
    data = bytearray(gzip.compress(MANY))
    data[-100_000:-99_000] = random.Random(3).randbytes(1000)
    whole = bytearray()
    with pytest.raises(zlib.error):
        inflate_into(whole, data)
    found = log(bytes(data))
    assert (
        sum(isinstance(item, Request) for item in found)
        == sum(is_request(one) for one in whole.split(b"\n")[:-1])
        > 1000
    )
    assert skips(found)[-1][1] in ("broken-stream", "invalid-json", "invalid-utf8")
    assert "broken-stream" in [slug for _, slug in skips(found)]


def test_a_wrong_checksum_loses_no_line(log):
    data = bytearray(gzip.compress(line("a") + b"\n" + line("b") + b"\n"))
    data[-8] ^= 1
    found = log(bytes(data))
    assert prompts(found) == ["a", "b"]
    assert [slug for _, slug in skips(found)] == ["broken-stream"]


@pytest.mark.parametrize("head", [b"\x1f\x8b", b"\x28\xb5\x2f\xfd"])
def test_only_a_magic_number(log, head):
    with pytest.raises(LogRefusedError) as caught:
        log(head)
    assert caught.value.slug == "broken-stream"


# -- files that are no logs -------------------------------------------------------------------------------------------


class Bomb:
    """A pickle that would say so if it were loaded."""

    def __reduce__(self):
        return os.abort, ()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_are_refused_and_never_loaded(log, protocol):
    with pytest.raises(LogRefusedError) as caught:
        log(pickle.dumps({"requests": [Bomb()]}, protocol=protocol), name="requests.jsonl")
    assert caught.value.slug == "pickle"
    assert "sglang" in caught.value.hint


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04rest", b"\x7fELF\x02\x01\x01\0\0\0", b"SQLite format 3\0...", b"a\0b\0c" * 99]
)
def test_other_binary_files_are_named(log, data):
    with pytest.raises(LogRefusedError) as caught:
        log(data)
    assert caught.value.slug == "binary-file"


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf", gzip.compress(b"")])
def test_an_empty_file_is_no_input(log, data):
    with pytest.raises(NoInputError) as caught:
        log(data)
    assert caught.value.exit_code == 3


def test_an_engine_log_without_requests_is_not_a_list_of_prompts(log):
    text = b"2026-03-03 09:00:00 server started\n2026-03-03 09:00:01 listening\nINFO ready\n"
    with pytest.raises(LogRefusedError):
        log(text * 20)


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_a_folder_is_read_in_sorted_order_and_names_what_it_cannot_read(tmp_path):
    for name, data in {
        "b.jsonl": line("b"),
        "a.jsonl": line("a"),
        "sub/c.jsonl.gz": gzip.compress(line("c")),
        ".hidden/x.jsonl": line("x"),
        "empty.jsonl": b"",
        "README.md": b"# Notes\nThese are logs.\n",
        "dump.pkl": pickle.dumps([1]),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    found = list(read([str(tmp_path)]))
    assert prompts(found) == ["a", "b", "c"]
    named = {Path(item.path).name: item.slug for item in found if isinstance(item, Skip)}
    assert named == {"README.md": "unknown-format", "dump.pkl": "pickle", "empty.jsonl": "empty-file"}


def test_globs_and_repeated_names_read_each_file_once(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(line(name[0]))
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")
    paths = [str(tmp_path / "*.jsonl"), str(tmp_path / "b.jsonl"), str(tmp_path)]
    assert prompts(read(paths)) == ["a", "b"]


def test_a_missing_file_is_named_and_the_others_are_read(tmp_path):
    (tmp_path / "a").write_bytes(line("a"))
    found = list(read([str(tmp_path / "nope"), str(tmp_path / "a")]))
    assert prompts(found) == ["a"]
    assert [(item.path, item.slug) for item in found if isinstance(item, Skip)] == [
        (str(tmp_path / "nope"), "not-found")
    ]


def test_nothing_but_missing_files_is_no_input(tmp_path):
    with pytest.raises(NoInputError) as caught:
        list(read([str(tmp_path / "nope*.jsonl")]))
    assert caught.value.exit_code == 3
    with pytest.raises(NoInputError):
        list(read([]))


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(line("a"))
    (tmp_path / "b").write_bytes(line("b"))

    def refuse(path, stdin, spools, true=_io.open_raw):
        if path.endswith("a"):
            raise PermissionError(13, "Permission denied")
        return true(path, stdin, spools)

    monkeypatch.setattr(_io, "open_raw", refuse)
    found = list(read([str(tmp_path)]))
    assert prompts(found) == ["b"]
    assert found[0].slug == "unreadable"
    assert "Permission denied" in found[0].reason


def test_standard_input(log):
    stdin = io.BytesIO(gzip.compress(line("a") + b"\n" + line("b")))
    found = list(read(["-"], stdin=stdin))
    assert prompts(found) == ["a", "b"]
    assert {item.path for item in found} == {"-"}


def test_a_named_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(line("a"),))
    writer.start()
    assert prompts(read([str(path)])) == ["a"]
    writer.join()


def test_an_unknown_format_name_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        read(["x"], log_format="nope")
    assert "openai-chat" in caught.value.hint


def test_a_forced_format_names_what_it_does_not_read(log):
    found = log(GOOD + b"\n" + b'{"timestamp": 0, "input_length": 5, "hash_ids": [1]}', log_format="openai_chat")
    assert prompts(found) == ["good"]
    assert skips(found) == [(2, "unknown-format")]


# -- anything at all --------------------------------------------------------------------------------------------------

QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def drain(path, **options):
    """Read a file to its end; only this project's own errors may come out."""
    try:
        for item in read([str(path)], **options):
            assert isinstance(item, (Request, Skip))
            assert item.line >= 0
            assert not isinstance(item, Skip) or item.slug != "reader-fault", item.reason
    except PrefixlintError as error:
        complaint = error
    else:
        return
    assert complaint.message
    assert complaint.slug


@QUIET
@given(st.binary(max_size=400))
def test_arbitrary_bytes(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    drain(tmp_path / "x")


@QUIET
@given(
    st.binary(max_size=200),
    st.sampled_from([b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"[", b"{", b'[{"', b"\xff\xfe", b"PAR1", b"a,b\n"]),
)
def test_arbitrary_bytes_behind_a_magic_number(tmp_path, data, head):
    (tmp_path / "x").write_bytes(head + data)
    drain(tmp_path / "x")


@QUIET
@given(st.integers(0, 3000), st.integers(0, 255), st.sampled_from(sorted(PACKED)))
def test_one_wrong_byte_in_an_archive(tmp_path, place, value, pack):
    data = bytearray(PACKED[pack](MANY[:6000]))
    data[place % len(data)] = value
    (tmp_path / "x").write_bytes(data)
    drain(tmp_path / "x")


KEYS = st.sampled_from(
    [
        "model",
        "messages",
        "role",
        "content",
        "system",
        "tools",
        "function",
        "name",
        "arguments",
        "input",
        "instructions",
        "output",
        "prompt",
        "text",
        "input_ids",
        "request",
        "response",
        "body",
        "usage",
        "prompt_tokens",
        "input_tokens",
        "cached_tokens",
        "choices",
        "message",
        "type",
        "tool_use",
        "tool_calls",
        "id",
        "input_schema",
        "tool_result",
        "thinking",
        "conversations",
        "from",
        "value",
        "hash_ids",
        "input_length",
        "block_size",
        "timestamp",
        "session_id",
        "previous_response_id",
        "conversation",
        "metadata",
        "custom_id",
        "method",
        "url",
        "completion",
        "prompt_tokens_details",
        "params",
        "headers",
        "assistant",
        "user",
        "tool",
        "created",
        "latency_ms",
        "delta",
        "chunks",
        "completion",
        "data",
        "error",
    ]
)
WORDS = st.sampled_from(
    ["user", "assistant", "system", "tool", "text", "response", "claude-x", "resp_1", "message", "{}", '{"a":[1]}']
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=5),
    max_leaves=25,
)


@settings(QUIET, max_examples=250)
@given(st.lists(st.dictionaries(KEYS, JSON, max_size=6), min_size=1, max_size=3))
def test_objects_with_known_keys_in_unknown_shapes(tmp_path, rows):
    (tmp_path / "x").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    drain(tmp_path / "x")


@settings(QUIET, max_examples=150)
@given(st.sampled_from(format_names()), st.lists(st.dictionaries(KEYS, JSON, max_size=6), min_size=1, max_size=2))
def test_objects_forced_on_a_format_that_did_not_ask_for_them(tmp_path, name, rows):
    (tmp_path / "x").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    drain(tmp_path / "x", log_format=name)


def mutated(draw):
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    return draw(st.dictionaries(KEYS, JSON, max_size=3)) | body | draw(st.dictionaries(KEYS, JSON, max_size=2))


@settings(QUIET, max_examples=150)
@given(st.data())
def test_bodies_with_one_thing_wrong(tmp_path, data):
    row = mutated(data.draw)
    if data.draw(st.booleans()):
        row = {"request": row} | data.draw(st.dictionaries(KEYS, JSON, max_size=3))
    (tmp_path / "x").write_text(json.dumps(row), "utf-8")
    drain(tmp_path / "x")
