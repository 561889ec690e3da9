"""gpt-oss as vLLM renders it: with the Harmony library and not with the model's Jinja template.

Read from vLLM 0.33.0, `entrypoints/openai/parser/harmony_utils.py`. SGLang 0.5.23 renders gpt-oss with Jinja. The
library is `oss-harmony` (extra `harmony`; it carries its vocabulary) or `openai-harmony` (same module, fetches it).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from prefixlint.errors import ModelError, TemplateRefusedError
from prefixlint.model import JsonObject, Messages, Output
from prefixlint.sandbox import FIXED_TIME

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_HEADER = re.compile(r"assistant<\|channel\|>(?P<channel>\S+) to=(?P<to>\S+) <\|constrain\|>(?P<kind>.+)")


class Harmony:
    """Renders conversations for gpt-oss. `ids` are exact; `prompt` is their text."""

    def __init__(self) -> None:
        try:
            import openai_harmony
        except ImportError as error:
            raise ModelError(
                "vLLM renders gpt-oss with Harmony, which is not installed",
                slug="needs-harmony",
                hint="pip install 'prefixlint[harmony]'",
            ) from error
        self._library = openai_harmony
        try:
            self._encoding = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
        except openai_harmony.HarmonyError as error:
            raise ModelError(
                f"the vocabulary of Harmony cannot be had: {error}",
                slug="needs-harmony",
                hint="install oss-harmony in place of openai-harmony: it carries the vocabulary",
            ) from error

    def prompt(self, content: Messages, *, params: Mapping[str, Any] = _NOTHING, time: float | None = None) -> str:
        """Give the prompt as text."""
        return str(self._encoding.decode_utf8(self.ids(content, params=params, time=time)))

    def ids(self, content: Messages, *, params: Mapping[str, Any] = _NOTHING, time: float | None = None) -> list[int]:
        """Give the prompt's token ids. `time` (UTC) is the date in the system message; None is `FIXED_TIME`."""
        library = self._library
        try:
            messages = self._messages(content, params, FIXED_TIME if time is None else time)
            conversation = library.Conversation.from_messages(_without_old_analysis(messages))
            config = library.RenderConversationConfig(auto_drop_analysis=False)
            ids = self._encoding.render_conversation_for_completion(conversation, library.Role.ASSISTANT, config=config)
        except (library.HarmonyError, ValueError, TypeError, AttributeError, KeyError) as error:
            words = str(error).strip().splitlines()
            raise TemplateRefusedError(
                f"Harmony refuses this conversation: {words[0] if words else type(error).__name__}",
                slug="template-refused",
            ) from error
        return self._with_legacy_headers(ids)

    def generated(
        self,
        content: Messages,
        output: Output,
        *,
        params: Mapping[str, Any] = _NOTHING,
        time: float | None = None,
        prompt: str | None = None,
    ) -> str | None:
        """Give the text that the model generated; None for tool calls, whose headers models write in two ways."""
        del content, params, time, prompt  # what is generated begins after the prompt, whatever that was
        if output.tool_calls or output.text is None:
            return None
        thought = (
            f"<|channel|>analysis<|message|>{output.reasoning}<|end|><|start|>assistant" if output.reasoning else ""
        )
        return f"{thought}<|channel|>final<|message|>{output.text}"

    def _messages(self, content: Messages, params: Mapping[str, Any], time: float) -> list[Any]:
        library = self._library
        chat = list(content.messages)
        instructions = None
        if chat and chat[0].get("role") in {"system", "developer"}:
            instructions = _text(chat.pop(0).get("content"))
        result = [self._system(params.get("reasoning_effort"), time)]
        if instructions or content.tools:
            result.append(self._developer(instructions, content.tools))
        names = {
            call.get("id"): call.get("function", {}).get("name")
            for message in chat
            for call in message.get("tool_calls") or ()
        }
        for message in chat:
            role = message.get("role")
            if role == "assistant":
                result.extend(self._assistant(message))
            elif role == "tool":
                author = library.Author.new(
                    library.Role.TOOL, f"functions.{names.get(message.get('tool_call_id')) or ''}"
                )
                answer = library.Message.from_author_and_content(author, _text(message.get("content")) or "")
                result.append(answer.with_channel("commentary").with_recipient("assistant"))
            elif role in {"system", "developer"}:
                text = _text(message.get("content"))
                result += [] if text is None else [self._developer(text, ())]
            else:
                texts = _texts(message.get("content"))
                parts = [library.TextContent(text=text) for text in texts]
                result.append(library.Message.from_role_and_contents(library.Role(role), parts))
        return result

    def _system(self, effort: Any, time: float) -> Any:
        library = self._library
        system = library.SystemContent.new()
        if effort is not None:
            system = system.with_reasoning_effort(library.ReasoningEffort[str(effort).upper()])
        day = datetime.fromtimestamp(time, tz=UTC).strftime("%Y-%m-%d")
        system = system.with_conversation_start_date(day)
        return library.Message.from_role_and_content(library.Role.SYSTEM, system)

    def _developer(self, instructions: str | None, tools: Sequence[JsonObject]) -> Any:
        library = self._library
        content = library.DeveloperContent.new()
        if instructions is not None:
            content = content.with_instructions(instructions)
        functions = [tool["function"] for tool in tools if isinstance(tool.get("function"), dict)]
        if functions:
            descriptions = [
                library.ToolDescription.new(
                    name=function["name"],
                    description=function.get("description") or "",
                    parameters=function.get("parameters"),
                )
                for function in functions
            ]
            content = content.with_function_tools(descriptions)
        return library.Message.from_role_and_content(library.Role.DEVELOPER, content)

    def _assistant(self, message: JsonObject) -> list[Any]:
        """Give what an assistant said: a preamble or the answer, its reasoning, its calls, each in its channel."""

        def said(text: str, channel: str) -> Any:
            return self._library.Message.from_role_and_content(self._library.Role.ASSISTANT, text).with_channel(channel)

        reasoning = next((message[key] for key in ("reasoning", "reasoning_content") if message.get(key)), None)
        thought = [said(reasoning, "analysis")] if isinstance(reasoning, str) else []
        text = _text(message.get("content"))
        calls = message.get("tool_calls")
        if not calls:
            return [*thought, said(text, "final")] if text else thought
        result = [said(text, "commentary")] if text else []
        result += thought
        for call in calls:
            function = call.get("function", {})
            arguments = function.get("arguments") or ""
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            made = said(text, "commentary").with_recipient(f"functions.{function.get('name', '')}")
            result.append(made.with_content_type("json"))
        return result

    def _with_legacy_headers(self, ids: list[int]) -> list[int]:
        """Write the header of a call as gpt-oss was trained on it; newer libraries write the recipient behind."""
        start, message = (self._special(name) for name in ("start", "message"))
        result: list[int] = []
        at = 0
        while at < len(ids):
            result.append(ids[at])
            end = _index(ids, message, at) if ids[at] == start else None
            if end is not None:
                header = _HEADER.fullmatch(self._encoding.decode_utf8(ids[at + 1 : end]))
                if header is not None:
                    text = f"assistant to={header['to']}<|channel|>{header['channel']} {header['kind']}"
                    result.extend(self._encoding.encode(text, allowed_special="all"))
                    at = end - 1
            at += 1
        return result

    def _special(self, name: str) -> int:
        return int(self._encoding.encode(f"<|{name}|>", allowed_special="all")[0])


def _index(ids: list[int], wanted: int, start: int) -> int | None:
    try:
        return ids.index(wanted, start)
    except ValueError:
        return None


def _without_old_analysis(messages: list[Any]) -> list[Any]:
    """Drop the reasoning before the last final answer."""
    finals = [at for at, message in enumerate(messages) if message.channel == "final"]
    last = finals[-1] if finals else -1
    return [message for at, message in enumerate(messages) if at >= last or message.channel != "analysis"]


def _texts(content: Any) -> list[str]:
    if isinstance(content, list):
        return [str(part.get("text") or "") if isinstance(part, dict) else str(part) for part in content]
    return [content if isinstance(content, str) else ""]


def _text(content: Any) -> str | None:
    """Give the text of content in parts, joined without a separator; None where there is none."""
    if content is None or isinstance(content, str):
        return content
    texts = [part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | dict)]
    found = [text for text in texts if text is not None]
    return "".join(found) if found else None
