"""Hits per request through the command line, beside a slow reference that shares no code with the analysis.

The reference renders with transformers, tokenizes each whole prompt with `tokenizers`, and compares it with every
earlier prompt, token by token. Conversations are random: several turns with tools, calls, reasoning, salts, outputs,
edited and shortened histories, over several chat templates, in a log whose lines are out of order.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from prefixlint.cli import main

transformers = pytest.importorskip("transformers", minversion="5.20")
pytestmark = pytest.mark.oracle

TEMPLATES = Path(__file__).parents[1] / "fixtures" / "templates"
# what ends an answer: sampled as the stop token, so it has no KV
ENDS = {
    "qwen25": "<|im_end|>\n",
    "qwen3": "<|im_end|>\n",
    "llama31": "<|eot_id|>",
    "deepseek3": "<｜end▁of▁sentence｜>",
    "mistral": "</s>",
    "gemma": "<end_of_turn>\n",
}
NO_TOOLS = ("gemma",)
SPECIALS = [
    *("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "<start_of_turn>", "<end_of_turn>", "<tool_call>"),
    *("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
]
WORDS = [
    *[
        "the",
        "order",
        "of",
        "a",
        "customer",
        "is",
        "late",
        "and",
        "the",
        "invoice",
        "was",
        "sent",
        "to",
        "an",
        "old",
        "address",
        "please",
        "check",
        "it",
        "again",
    ],
    *("naïve", "東京", "🌧️", "  ", "\n\n", "\t", "<|im_end|>", "[INST]", "don't", "12:04:33", "x" * 40, "{{ no }}", "é"),
]
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} of a place", "parameters": PARAMETERS}}
    for name in ("weather", "time", "news")
]


def tokenizer():
    """A small byte-level BPE with merges of its own, so that pieces can grow together where they must not."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([" ".join(WORDS) * 3, json.dumps(TOOLS)], trainer)
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return made


class Writer:
    """Random conversations as a log: requests with the answers they got, in order of time."""

    def __init__(self, template, seed):
        self.rng = random.Random(seed)
        self.template = template
        self.rows = []
        self.systems = [self.text(40) for _ in range(3)]

    def text(self, most=12):
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, most)))

    def answer(self, tools):
        message = {"role": "assistant", "content": self.text()}
        if self.template == "qwen3" and self.rng.random() < 0.5:
            message["reasoning_content"] = self.text()
        if tools and self.rng.random() < 0.4:
            call = {"name": "weather", "arguments": json.dumps({"place": self.text(2)}, ensure_ascii=False)}
            message |= {"content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": call}]}
        return message

    def conversation(self, turns):
        rng = self.rng
        tools = [] if self.template in NO_TOOLS else rng.choice([[], TOOLS, TOOLS[::-1], TOOLS[:2]])
        messages = [{"role": "system", "content": rng.choice(self.systems)}] if rng.random() < 0.8 else []
        extra = {"cache_salt": rng.choice("ab")} if rng.random() < 0.2 else {}
        for _ in range(turns):
            messages.append({"role": "user", "content": self.text()})
            while True:
                answer = self.answer(tools)
                self.rows.append((list(messages), tools, extra, answer, rng.choice(("stop", "stop", "length"))))
                messages.append(answer)
                if "tool_calls" not in answer:
                    break
                messages.append({"role": "tool", "tool_call_id": "abcdefghi", "content": self.text()})
            if rng.random() < 0.15:  # an agent that rewrites what it said
                messages[-1] = {"role": "assistant", "content": self.text()}
            if rng.random() < 0.1 and messages[0]["role"] == "system":  # a clock in the system prompt
                messages[0] = {"role": "system", "content": f"{rng.random()} {messages[0]['content']}"}

    def lines(self):
        found = []
        for number, (messages, tools, extra, answer, finish) in enumerate(self.rows):
            body = {"model": "m", "messages": messages, **({"tools": tools} if tools else {}), **extra}
            reply = {"choices": [{"index": 0, "message": answer, "finish_reason": finish}]}
            found.append({"timestamp": 1000 + number, "id": f"r{number}", "request": body, "response": reply})
        return found


def parsed(messages):
    """Give messages as a chat route hands them to the template: arguments of calls as objects."""
    found = []
    for message in messages:
        calls = [
            call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
            for call in message.get("tool_calls", ())
        ]
        found.append(message | ({"tool_calls": calls} if calls else {}))
    return found


class Reference:
    """What a cache of unlimited size holds and finds, the slow way."""

    def __init__(self, folder, template):
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.chat = transformers.PreTrainedTokenizerFast(
            tokenizer_object=self.tokenizer,
            bos_token="<s>",
            eos_token="</s>",
            chat_template=(TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8"),
        )
        self.end = ENDS[template]

    def render(self, messages, tools, prompt=True):
        return self.chat.apply_chat_template(
            parsed(messages), tools=tools or None, tokenize=False, add_generation_prompt=prompt
        )

    def ids(self, text):
        return np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, np.int64)

    def generated(self, messages, tools, answer, finish, prompt):
        """Give the tokens of the answer that have KV: its text as the template will write it, less its end."""
        if not answer.get("tool_calls") and not answer.get("reasoning_content"):
            ids = self.ids(answer["content"])
        else:
            whole = self.render([*messages, answer], tools, prompt=False)
            if not whole.startswith(prompt):
                return self.ids("")
            ids = self.ids(whole[len(prompt) :].removesuffix(self.end))
        return ids[:-1] if finish == "length" else ids

    def hits(self, rows, blocks):
        """Give prompt tokens and cached tokens by block size for each request in order."""
        stored = {}
        for messages, tools, extra, answer, finish in rows:
            text = self.render(messages, tools)
            prompt = self.ids(text)
            held = stored.setdefault(extra.get("cache_salt"), [])
            reach = min(max((equal(prompt, other) for other in held), default=0), prompt.size - 1)
            yield prompt.size, [reach // size * size for size in blocks]
            held.append(np.concatenate((prompt, self.generated(messages, tools, answer, finish, text))))


def equal(one, other):
    n = min(one.size, other.size)
    different = np.flatnonzero(one[:n] != other[:n])
    return int(different[0]) if different.size else n


@pytest.mark.parametrize("template", ENDS)
def test_hits_per_request_equal_the_reference(tmp_path, template):
    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    (folder / "chat_template.jinja").write_bytes((TEMPLATES / f"{template}.jinja").read_bytes())
    writer = Writer(template, seed=template)
    for _ in range(45):
        writer.conversation(writer.rng.randint(1, 4))
    lines = writer.lines()
    assert len(lines) > 80
    expected = list(Reference(folder, template).hits(writer.rows, (1, 16, 5)))
    random.Random(template).shuffle(lines)
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    for column, size in enumerate((None, 16, 5)):
        out = tmp_path / "requests.jsonl"
        options = [] if size is None else ["--block-size", str(size)]
        command = [
            "analyze",
            str(log),
            "--model",
            str(folder),
            "--requests-out",
            str(out),
            "--format",
            "json",
            *options,
        ]
        result = CliRunner().invoke(main, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        found = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert [line["id"] for line in found] == [f"r{n}" for n in range(len(lines))]
        assert [line["prompt_tokens"] for line in found] == [prompt for prompt, _ in expected]
        for name in ("sglang", "vllm"):
            at = 1 if size is None and name == "vllm" else column
            cached = [line["engines"][name]["cached_tokens"] for line in found]
            assert cached == [hits[at] for _, hits in expected], (name, size)
    assert sum(hits[0] for _, hits in expected) > 1000
