"""Prompts that an engine logged as the text which its chat template gave, taken apart into messages and put together.

What is put together again is the text that was taken apart, to the character: where it is not, a text is no such
prompt. Forms are those of published chat templates (ChatML, Llama 3, Gemma, Phi 4, gpt-oss, DeepSeek V3, Mistral).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from typing import Any

from prefixlint.model import Content, Messages, Text

NAME = "rendered-text"
"""The format of a request that was taken apart; no log has it."""

_ROLES = ("system", "user", "assistant", "tool", "developer", "model", "ipython")


@dataclass(frozen=True)
class _Form:
    """How a template writes messages: what stands before and behind the content, by role.

    `bare` is the role of text before the first message, behind the tokens `start`; `answers` is the end of the model's
    answers, where nothing stands before them. Both are None where there is none.
    """

    name: str
    around: Mapping[str, tuple[str, str]]
    start: str = ""
    bare: str | None = None
    answers: str | None = None

    @cached_property
    def _opens(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(before) for before, _ in self.around.values()))

    @cached_property
    def _roles(self) -> Mapping[str, str]:
        return {before: role for role, (before, _) in self.around.items()}

    def taken_apart(self, text: str) -> dict[str, Any] | None:
        """Give messages, and what stands before and behind them; None where that is no conversation."""
        if self.around["user"][0] not in text:  # which is found out some twenty times as fast
            return None
        found = list(self._opens.finditer(text))
        head, messages, at = text[: found[0].start()], list[dict[str, Any]](), found[0].start()
        for number, opening in enumerate(found):
            end = found[number + 1].start() if number + 1 < len(found) else len(text)
            taken = self._message(text[opening.end() : end], self._roles[opening[0]], last=number + 1 == len(found))
            if taken is None:
                if number + 1 < len(found):
                    return None
                break
            messages += taken[0]
            at = opening.end() + taken[1]
        if self.bare is not None and (said := head.removeprefix(self.start)):
            messages.insert(0, {"role": self.bare, "content": said})
            head = head[: len(head) - len(said)]
        return {"messages": messages, "form": self.name, "head": head, "tail": text[at:]} if messages else None

    def _message(self, text: str, role: str, *, last: bool) -> tuple[list[dict[str, Any]], int] | None:
        """Read what stands behind an opening: a message, the answer behind it, and how long both are."""
        behind = self.around[role][1]
        content, closed, rest = text.partition(behind) if behind else (text, "", "")
        if behind and not closed:
            return None
        found = [{"role": role, "content": content}]
        if self.answers is not None and rest.endswith(self.answers):
            return [*found, {"role": "assistant", "content": rest.removesuffix(self.answers)}], len(text)
        return (found, len(text) - len(rest)) if last or not rest else None

    def written(self, body: Mapping[str, Any]) -> list[str] | None:
        """Give the text of messages in pieces: what is ahead of the first content, it, what is behind it, and so on.

        None where a message is not to be written in this form.
        """
        written = [str(body["head"])]
        for number, message in enumerate(body["messages"]):
            role, content = message["role"], message["content"]
            around = self.around.get(role)
            if number == 0 and role == self.bare:
                around = ("", "")
            elif role == "assistant" and self.answers is not None:
                around = ("", self.answers)
            if around is None or not isinstance(content, str):
                return None
            written[-1] += around[0]
            written += [content, around[1]]
        written[-1] += str(body["tail"])
        return written


def _like(before: str, behind: str) -> dict[str, tuple[str, str]]:
    """Write all roles in one way, with the role's name in it."""
    return {role: (before.format(role), behind) for role in _ROLES}


_FORMS = {
    form.name: form
    for form in (
        _Form("chatml", _like("<|im_start|>{}\n", "<|im_end|>\n")),
        _Form("phi", _like("<|im_start|>{}<|im_sep|>", "<|im_end|>")),
        _Form("llama", _like("<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>")),
        _Form("gemma", _like("<start_of_turn>{}\n", "<end_of_turn>\n")),
        _Form("harmony", _like("<|start|>{}<|message|>", "<|end|>")),
        _Form(
            "deepseek",
            {"user": ("<｜User｜>", ""), "assistant": ("<｜Assistant｜>", "<｜end▁of▁sentence｜>")},
            start="<｜begin▁of▁sentence｜>",
            bare="system",
        ),
        _Form(
            "mistral",
            {
                "system": ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
                "user": ("[INST]", "[/INST]"),
            },
            answers="</s>",
        ),
    )
}


@lru_cache(maxsize=8)  # several stages ask for the same prompt one after the other
def taken_apart(text: str) -> Mapping[str, Any] | None:
    """Give a prompt's messages as a body of their own, not to be changed; None for a text in none of the forms."""
    for form in _FORMS.values():
        body = form.taken_apart(text)
        if body is not None:
            return body if put_together(body) == text else None
    return None


def put_together(body: Mapping[str, Any]) -> str | None:
    """Give the text of such a body, whose messages may be other ones; None where it cannot be written."""
    written = _FORMS[body["form"]].written(body)
    return None if written is None else "".join(written)


def starts(body: Mapping[str, Any]) -> tuple[int, ...]:
    """Give the characters of the text at which the contents of a body's messages begin."""
    ends = accumulate(map(len, _FORMS[body["form"]].written(body) or ()))
    return tuple(islice(ends, 0, 2 * len(body["messages"]), 2))


def as_messages(content: Content) -> Content:
    """Give the messages of a text that a chat template wrote; any other prompt as it is."""
    chat = taken_apart(content.text) if isinstance(content, Text) else None
    return content if chat is None else Messages(chat["messages"])
