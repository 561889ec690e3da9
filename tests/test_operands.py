"""What may be handed to commands that compare: names of requests, and values at hand."""

import json
import os
import threading

import pytest

from prefixlint.errors import NoInputError, UsageError
from prefixlint.model import Messages, Text, TokenIds
from prefixlint.operands import at_hand, load, place


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("log.jsonl#12", ("log.jsonl", 12, 0)),
        ("log.jsonl#12.3", ("log.jsonl", 12, 3)),
        ("a#b#7", ("a#b", 7, 0)),
        ("-#1", ("-", 1, 0)),
        ("log.jsonl", None),
        ("log.jsonl#", None),
        ("log.jsonl#x", None),
        ("log.jsonl#1.x", None),
        ("log.jsonl#-1", None),
        ("log.jsonl#²", None),
    ],
)
def test_places(name, found):
    assert place(name) == found


def chat(text):
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def test_lines_and_parts_of_a_log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(chat(text)) for text in ("one", "two")))
    assert load(f"{path}#2").content.messages[0]["content"] == "two"
    for missing in (f"{path}#3", f"{path}#2.1"):
        with pytest.raises(UsageError, match="no request at line"):
            load(missing)
    with pytest.raises(NoInputError):
        load(f"{path}x#1")


def test_a_file_whose_name_has_the_sign(tmp_path):
    path = tmp_path / "prompt#3"
    path.write_text("plain words")
    assert load(str(path)).content == Text("plain words")
    assert load(str(path), rendered=True).content == Text("plain words", rendered=True)


@pytest.mark.parametrize(
    "text", ["one\ntwo\n", '<s>\n{"name": "look"}\n</s>', "2026-01-01 10:00 is now\nand on", "", "a\\nb\n"]
)
def test_a_file_of_several_lines_is_one_prompt(tmp_path, text):
    path = tmp_path / "prompt.txt"
    path.write_text(text)
    assert load(str(path), rendered=True).content == Text(text, rendered=True)


def test_values_at_hand():
    assert at_hand("text", "A").content == Text("text", rendered=True)
    assert at_hand([1, 2, 3], "A").content == TokenIds((1, 2, 3))
    assert isinstance(at_hand(chat("x"), "A").content, Messages)
    assert at_hand(chat("x")["messages"], "A").content.messages[0]["content"] == "x"
    assert at_hand(chat("x"), "B").path == "B"


def test_bodies_of_other_dialects():
    claude = {"model": "claude-sonnet-4-5", "max_tokens": 5, "system": "s", "messages": chat("x")["messages"]}
    assert at_hand(claude, "A").format == "anthropic-messages"


def test_a_pipe_is_read_once_and_a_folder_is_called_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for written, found in (("It is noon.", "It is noon."), (json.dumps(chat("one")), None)):
        writer = threading.Thread(target=pipe.write_text, args=(written,))
        writer.start()
        request = load(str(pipe))
        writer.join()
        assert request.path == str(pipe)
        assert request.content == Text(found, False) if found else request.content.messages[0]["content"] == "one"
    with pytest.raises(NoInputError, match="a folder"):
        load(str(tmp_path))
