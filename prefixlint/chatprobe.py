"""What a chat template does to the prefix, found by rendering small conversations that differ in one thing.

Nothing is guessed from the template's wording: each observation is two renderings whose difference shows it, and the
expression that wrote the first differing character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from prefixlint.bodies import common_prefix
from prefixlint.chattrace import Place, Traced
from prefixlint.sandbox import FIXED_TIME

Json = dict[str, Any]

KINDS = ("clock", "reasoning", "opener", "tools", "argument", "verbatim")
"""Words for what `observe` sees."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SYSTEM, _ASK, _MORE = "Weigh parcels only.", "Kelp crate?", "Second crate?"
_ANSWER, _THOUGHT, _RESULT = "Juniper answer.", "Musing about crates.", "Scales say nine."
_ARGUMENTS = '{"box":"kelp","tags":["a","b"]}'
_PADDED = " \nJuniper answer. \n"
_HEADS: tuple[list[Json], ...] = ([{"role": "system", "content": _SYSTEM}], [])
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "weigh_parcel",
        "description": "Weigh one parcel.",
        "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    },
}
_TIME = FIXED_TIME + 12 * 3600 + 34 * 60 + 56  # not at the border of a minute, an hour or a day
_STEPS = ((1, "second"), (60, "minute"), (3600, "hour"), (86_400, "day"), (32 * 86_400, "month"))
_MODES: tuple[Mapping[str, Any], ...] = (
    _NOTHING,
    MappingProxyType({"enable_thinking": False, "thinking": False}),
    MappingProxyType({"enable_thinking": True, "thinking": True}),
)
_VALUES: tuple[Any, ...] = (True, False, "low", "high")
_NOT_ARGUMENTS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "functions"})
_MAX_ARGUMENTS = 24
_BOS = (
    "<s>",
    "<bos>",
    "<|begin_of_text|>",
    "<|startoftext|>",
    "<｜begin▁of▁sentence｜>",
    "<|bos|>",
    "[BOS]",
    "<BOS_TOKEN>",
)
_KEEPER = re.compile(r"(?:preserve|keep|clear|truncate|drop|interleav)\w*(?:think|reason)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Observation:
    """Something a template does. `kind` is a word of `KINDS`; `start` and `end` are characters of its source.

    `detail` is the period of a clock, the name of an argument, or what is not verbatim; `related` are other places of
    the source that explain it, with words.
    """

    kind: str
    start: int
    end: int
    message: str
    detail: str = ""
    related: tuple[tuple[int, int, str], ...] = ()


@dataclass(slots=True)
class _Probe:
    """A template with the conversation that it accepts."""

    traced: Traced
    tokens: Mapping[str, str]
    head: list[Json] = field(default_factory=list)

    def variables(
        self, turns: Sequence[Json], *, tools: bool = False, opener: bool = False, given: Mapping[str, Any] = _NOTHING
    ) -> dict[str, Any]:
        return {
            **self.tokens,
            "documents": None,
            **given,
            "messages": [*self.head, *turns],
            "tools": [_TOOL] if tools else None,
            "add_generation_prompt": opener,
        }

    def place(self, variables: Mapping[str, Any], offset: int, time: float | None = None) -> Place:
        """Give what wrote a character: its expression, the condition around mere white space, else the first line."""
        source = self.traced.source
        found = self.traced.place(variables, time, offset)
        if found is None:
            return Place(0, max(1, (source + "\n").index("\n")))
        if not source[found.start : found.end].strip() and found.conditions:
            start, end = found.conditions[-1]
            return Place(start, end, found.since)
        return found


def forgets(sources: Iterable[str], tokens: Mapping[str, str] = _NOTHING) -> bool:
    """Tell whether a chat template of a model leaves out the reasoning of a turn from the next user message on.

    That is reasoning in a field of its own. Raises TemplateError if one does not compile.
    """
    probes = (_probing(source, tokens) for source in sources)
    return any(probe is not None and any(_reasoning(probe, inline=False)) for probe in probes)


def _probing(source: str, tokens: Mapping[str, str]) -> _Probe | None:
    """Give a probe of a template, with a system text where the template takes one; None where it refuses all."""
    probe = _Probe(Traced(source), {"bos_token": "<s>", "eos_token": "</s>", **tokens})
    for head in _HEADS:
        probe.head = head
        if probe.traced.render(probe.variables([_user(_ASK)], opener=True)) is not None:
            return probe
    return None


def observe(source: str, tokens: Mapping[str, str] = _NOTHING) -> tuple[Observation, ...]:
    """Give what a chat template does that costs cache hits, in the order of its source.

    `tokens` are its special tokens (`bos_token`, …) as far as they are known.
    Raises TemplateError if the template does not compile; one that refuses every conversation shows nothing.
    """
    probe = _probing(source, tokens)
    if probe is None:
        return ()
    found = [
        *_clock(probe, _HEADS),
        *_reasoning(probe),
        *_opener(probe),
        *_tools(probe),
        *_arguments(probe),
        *_text(probe),
        *_calls(probe),
        *_second_bos(probe),
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda seen: (seen.start, seen.end, seen.kind, seen.detail)))


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


def _assistant(text: str, **more: Any) -> Json:
    return {"role": "assistant", "content": text, **more}


def _calling(text: str, arguments: Any, **more: Any) -> list[Json]:
    """Give an assistant's call of a tool and its result; both usual places of name and arguments are filled."""
    function = {"name": "weigh_parcel", "arguments": arguments}
    call = {"id": "call00001", "type": "function", "function": function, **function}
    answer = {"role": "tool", "content": _RESULT, "tool_call_id": "call00001", "name": "weigh_parcel"}
    return [_assistant(text, tool_calls=[call], **more), answer]


def _clock(probe: _Probe, heads: Iterable[list[Json]]) -> Iterator[Observation]:
    """Render one conversation at two times."""
    if "strftime_now" not in probe.traced.source:
        return
    kept = probe.head
    for head in heads:
        probe.head = head
        for tools in (False, True):
            variables = probe.variables([_user(_ASK)], tools=tools, opener=True)
            now = probe.traced.render(variables, _TIME)
            for step, period in _STEPS if now is not None else ():
                later = probe.traced.render(variables, _TIME + step)
                if now is not None and later is not None and later != now:
                    at = common_prefix(now, later)
                    yield _clocked(probe, probe.place(variables, at, _TIME), period)
                    probe.head = kept
                    return
    probe.head = kept


def _clocked(probe: _Probe, written: Place, period: str) -> Observation:
    call = re.search(r"strftime_now\s*\((?:[^()'\"]|'[^']*'|\"[^\"]*\")*\)", probe.traced.source)
    message = f"the chat template prints the time of the request; its text is another one each {period}"
    if call is None:
        return Observation("clock", written.start, written.end, message, period)
    inside = written.start <= call.start() < written.end
    related = () if inside else ((written.start, written.end, "it is printed here"),)
    return Observation("clock", call.start(), call.end(), message, period, related)


def _thinking_turns(*, inline: bool = True) -> Iterator[tuple[str, list[Json]]]:
    """Give turns with reasoning, as templates take it: in a field or in the text, before a call or before a result."""
    fields = {"reasoning_content": _THOUGHT, "thinking": _THOUGHT, "reasoning": _THOUGHT}
    ways: list[tuple[str, dict[str, str]]] = [(_ANSWER, fields)]
    if inline:
        ways.append((f"<think>\n{_THOUGHT}\n</think>\n\n{_ANSWER}", {}))
    for text, more in ways:
        for arguments in ({"box": "kelp"}, _ARGUMENTS):
            yield "a tool call", _calling(text, arguments, **more)
        yield (
            "a tool result",
            [_assistant(text, **more), {"role": "tool", "content": _RESULT, "tool_call_id": "call00001"}],
        )
    for text, more in ways:
        yield "", [_assistant(text, **more)]


def _reasoning(probe: _Probe, *, inline: bool = True) -> Iterator[Observation]:
    """Render a turn with reasoning before and after a later user message."""
    if _never_thinks(probe):
        return
    in_loop = False
    for after, turns in _thinking_turns(inline=inline):
        if not after and in_loop:
            return  # what stands in the loop of tools decides: a request does not end with an answer
        for tools in (False, True):
            variables = probe.variables([_user(_ASK), *turns], tools=tools)
            before = probe.traced.render(variables)
            later = probe.traced.render(
                probe.variables([_user(_ASK), *turns, _assistant("Nine."), _user(_MORE)], tools=tools)
            )
            if before is None or later is None:
                continue
            in_loop = in_loop or bool(after)
            if _THOUGHT in before and _THOUGHT not in later:
                at = common_prefix(before, later)
                yield _dropped(probe, probe.place(variables, at))
                return


_CLOSED = re.compile(r"<(think|thinking|reasoning)>\s*</\1>\s*\Z")


def _never_thinks(probe: _Probe) -> bool:
    """Tell whether each generation prompt ends with thoughts that are closed again: no turn has any."""
    prompts = [probe.traced.render(probe.variables([_user(_ASK)], opener=True, given=given)) for given in _MODES]
    shown = [prompt for prompt in prompts if prompt is not None]
    return bool(shown) and all(map(_CLOSED.search, shown))


def _dropped(probe: _Probe, place: Place) -> Observation:
    keepers = [name for name in probe.traced.names if _KEEPER.search(name)]
    message = (
        "the reasoning of a turn is printed until the next user message, then left out: the history before it changes"
    )
    if keepers:
        message += f" (the template has the argument `{keepers[0]}`)"
    related = tuple((start, end, "this condition decides") for start, end in place.conditions[-1:])
    return Observation("reasoning", place.start, place.end, message, keepers[0] if keepers else "", related)


def _opener(probe: _Probe) -> Iterator[Observation]:
    """Render the generation prompt, and the answer that it opened as history."""
    seen: set[tuple[int, int]] = set()
    for given in _MODES:
        variables = probe.variables([_user(_ASK)], opener=True, given=given)
        prompt = probe.traced.render(variables)
        plain = probe.traced.render(probe.variables([_user(_ASK)], given=given))
        if prompt is None or plain is None or prompt == plain:
            continue
        common = [common_prefix(prompt, text) for text in _histories(probe, prompt, given)]
        if not common or max(common) >= len(prompt):
            continue
        place = probe.place(variables, max(common))
        if (place.start, place.end) in seen:
            continue
        seen.add((place.start, place.end))
        missing = prompt[min(max(common), max(place.since, common_prefix(plain, prompt))) :]
        with_ = "" if given is _NOTHING else f" (with enable_thinking={str(given['enable_thinking']).lower()})"
        message = (
            f"the generation prompt ends with {_shown(missing)}{with_}; the same turn does not have it in the history"
        )
        related = tuple((start, end, "under this condition") for start, end in place.conditions[-1:])
        yield Observation("opener", place.start, place.end, message, missing, related)


def _histories(probe: _Probe, prompt: str, given: Mapping[str, Any]) -> Iterator[str]:
    """Give the ways in which the answer to a prompt may stand in the history, with reasoning if it opens some."""
    fields = {"reasoning_content": _THOUGHT, "thinking": _THOUGHT, "reasoning": _THOUGHT}
    opens = re.search(r"<(think|thinking|reasoning)>(?!.*</\1>)[^<]*\Z", prompt, re.DOTALL)
    answers: list[list[Json]] = [[_assistant(_ANSWER)]]
    if opens is not None:
        inline = f"{_THOUGHT}\n</{opens[1]}>\n\n{_ANSWER}"  # what was generated: the opener was given
        answers += [[_assistant(_ANSWER, **fields)], [_assistant(inline)], _calling(_ANSWER, {"box": "kelp"}, **fields)]
    answers += [_calling("", {"box": "kelp"}), _calling("", _ARGUMENTS)]
    for turns in answers:
        text = probe.traced.render(probe.variables([_user(_ASK), *turns, _user(_MORE)], given=given))
        if text is None:
            text = probe.traced.render(probe.variables([_user(_ASK), *turns], given=given))
        if text is not None and (turns[0]["content"] or len(turns) > 1):
            yield text
        if len(turns) > 1:  # the loop goes on: no user message has come yet
            text = probe.traced.render(probe.variables([_user(_ASK), *turns], opener=True, given=given))
            if text is not None:
                yield text


def _shown(text: str, limit: int = 40) -> str:
    """Give text as a reader can see it, line ends written out."""
    shown = text if len(text) <= limit else text[:limit] + "…"
    return "`" + shown.replace("\n", "\\n").replace("\t", "\\t") + "`"


def _tools(probe: _Probe) -> Iterator[Observation]:
    """Render the first and the second turn of a conversation with tools: the tools must stay where they are."""
    longer = [_user(_ASK), _assistant(_ANSWER), _user(_MORE)]
    variables = probe.variables([_user(_ASK)], tools=True)
    first, second = probe.traced.render(variables), probe.traced.render(probe.variables(longer, tools=True))
    bare = probe.traced.render(probe.variables([_user(_ASK)]))
    if first is None or second is None or bare is None:
        return
    at, name = common_prefix(first, second), _TOOL["function"]["name"]
    if name not in first or name in bare or first.index(name) < at:
        return
    place = probe.place(variables, at)
    related = tuple((start, end, "this condition decides") for start, end in place.conditions[-1:])
    message = "the tool definitions are printed inside the newest user message and move with each turn"
    yield Observation("tools", place.start, place.end, message, related=related)


def _arguments(probe: _Probe) -> Iterator[Observation]:
    """Render one conversation with two values of each argument."""
    names = [name for name in probe.traced.names if name not in _NOT_ARGUMENTS and not name.endswith("_token")]
    turns = [_user(_ASK)]
    for name in names[:_MAX_ARGUMENTS]:
        texts = [(probe.traced.render(probe.variables(turns, opener=True)), None)]
        texts += [(probe.traced.render(probe.variables(turns, opener=True, given={name: v})), v) for v in _VALUES]
        known = [(text, value) for text, value in texts if text is not None and _ASK in text]
        pairs = [
            (at, other, value)
            for (text, _), (other, value) in pairwise(known)
            if (at := common_prefix(text, other)) < min(text.index(_ASK), other.index(_ASK)) and text != other
        ]
        if not pairs:
            continue
        at, _, value = min(pairs, key=lambda pair: pair[0])
        variables = probe.variables(turns, opener=True, given={name: value})
        place = probe.place(variables, at)
        message = f"the argument `{name}` changes the text at character {at} of the prompt, ahead of all messages"
        related = tuple((start, end, "this condition decides") for start, end in place.conditions[-1:])
        fixed = (
            texts[0][0] is not None
            and re.search(rf"set\s+{re.escape(name)}\s*=\s*['\"]", probe.traced.source) is not None
        )
        yield Observation("argument", place.start, place.end, message, f"{name}{'=' if fixed else ''}", related)


def _text(probe: _Probe) -> Iterator[Observation]:
    """Render an answer that begins and ends with spaces."""
    variables = probe.variables([_user(_ASK), _assistant(_PADDED), _user(_MORE)])
    text = probe.traced.render(variables)
    if text is None or _PADDED in text or _ANSWER not in text:
        return
    place = probe.place(variables, text.index(_ANSWER))
    message = "white space around an answer is removed: the history does not hold the text that was generated"
    yield Observation("verbatim", place.start, place.end, message, "trim")


def _calls(probe: _Probe) -> Iterator[Observation]:
    """Render a call whose arguments are the compact JSON text that a client got and sends back."""
    for tools in (False, True):
        variables = probe.variables([_user(_ASK), *_calling("", _ARGUMENTS), _user(_MORE)], tools=tools)
        text = probe.traced.render(variables)
        if text is None or _ARGUMENTS in text:
            continue
        match = re.search(r"\{?\\?\"box\\?\"\s*:\s*\\?\"kelp", text)
        if match is not None:
            place = probe.place(variables, match.start() + 2)
            message = "the arguments of a call are written as JSON anew: spaces and escapes are not those generated"
            yield Observation("verbatim", place.start, place.end, message, "json")
            return


def _second_bos(probe: _Probe) -> Iterator[Observation]:
    """Look for two tokens that begin a sequence, one written out and one from `bos_token` or both alike."""
    own = probe.tokens["bos_token"]
    variables = probe.variables([_user(_ASK)])
    text = probe.traced.render(variables) or ""
    words = "|".join(re.escape(word) for word in dict.fromkeys((*_BOS, own)) if word)
    match = re.match(rf"\s*(?:{words})\s*({words})", text)
    if match is not None:
        place = probe.place(variables, match.start(1))
        message = "the prompt begins with two beginning-of-sequence tokens"
        yield Observation("verbatim", place.start, place.end, message, "bos")
