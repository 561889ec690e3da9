"""Which messages of two turns say the same, where what they are known by does not tell: all ids may be new."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from prefixlint.bodies import common_prefix
from prefixlint.logrules._message import Message, dumps


def content(message: Message) -> int:
    """Give what stands for all that a message says, whatever ids it has."""
    said = message.said
    calls = tuple([(call.name, _data(call.arguments)) for call in said.calls])
    return hash((said.role, said.text, said.reasoning, calls, tuple([r.text for r in said.results]), said.media))


def longest(message: Message) -> int:
    """Count the characters of the longest text that a message says, of a user, a model or a tool."""
    said = message.said
    return max(map(len, (said.text, said.reasoning, *(result.text for result in said.results))))


def keys(earlier: Sequence[Message], later: Sequence[Message]) -> tuple[list[int], list[int]]:
    """Give what the messages of two turns are known by to each other: by their content where no call is the same."""
    ours, theirs = (_with_ids(messages) for messages in (earlier, later))
    if ours and theirs and ours.isdisjoint(theirs):
        return [content(m) for m in earlier], [content(m) for m in later]
    return [m.key for m in earlier], [m.key for m in later]


def _with_ids(messages: Sequence[Message]) -> set[int]:
    return {m.key for m in messages if m.said.calls or m.said.results}


def begins_later(earlier: Sequence[Message], later: Sequence[Message], at: int) -> bool:
    """Tell whether a history begins at a later question of the user's, as many later as new ones stand behind it."""
    if not is_question(earlier[at]):
        return False
    gone, new = earlier[:at], later[len(earlier) - at :]
    return sum(map(is_question, gone)) <= sum(map(is_question, new))


def is_question(message: Message) -> bool:
    """Tell whether a user speaks in a message, and no tool."""
    said = message.said
    return said.role == "user" and bool(said.text) and not said.results


def is_thought(message: Message) -> bool:
    """Tell whether a message holds nothing but what a model thought, as in dialects in which that is an item."""
    said = message.said
    return bool(said.reasoning) and not (said.text or said.calls or said.results or said.media)


def akin(a: str, b: str) -> bool:
    """Tell whether two texts are two fillings of one template."""
    if not a or not b or a == b:
        return bool(a) and a == b
    front = common_prefix(a, b)
    back = common_prefix(a[::-1], b[::-1])
    size = min(len(a), len(b))
    return (front + min(back, size - front)) * 2 >= size


def forks(earlier: Sequence[Message], later: Sequence[Message], at: int) -> bool:
    """Tell whether a model was asked again at a place and gave another answer, from which only one of two goes on."""
    one, two = (list(takewhile(lambda m: not is_question(m), messages[at:])) for messages in (earlier, later))
    if not one or not two or any(run[0].said.role != "assistant" for run in (one, two)):
        return False
    if {m.key for m in earlier[at:]} & {m.key for m in later[at:]}:
        return False
    ours, theirs = (_deeds(run) for run in (one, two))
    ids = ({call.id for m in run for call in m.said.calls} - {None} for run in (one, two))
    return bool(ours and theirs) and ours.isdisjoint(theirs) and next(ids).isdisjoint(next(ids))


def swapped_results(e: Sequence[Message], l: Sequence[Message], n: int) -> Iterator[tuple[int, int]]:  # noqa: E741
    """Give runs of tool results that hold the same results in another order, whatever became of their texts."""
    index = n
    while index < min(len(e), len(l)):
        end = index
        while end < min(len(e), len(l)) and e[end].said.results and l[end].said.results:
            end += 1
        if end > index:
            ours = [r for m in e[index:end] for r in m.said.results]
            theirs = [r for m in l[index:end] for r in m.said.results]
            if len(ours) > 1 and ours != theirs and (_sorted(ours) == _sorted(theirs) or _reordered(ours, theirs)):
                yield index, end
        index = max(end, index + 1)


def _sorted(results: Sequence[Any]) -> list[tuple[str, str]]:
    return sorted((r.id or "", r.text) for r in results)


def _reordered(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Tell whether results of the same calls stand in another order."""
    one, two = ([r.id for r in results] for results in (ours, theirs))
    return one != two and None not in one and len({*one}) == len(one) and sorted(one) == sorted(map(str, two))


def _deeds(messages: Sequence[Message]) -> set[Any]:
    """Give what an answer does, and what came of it."""
    found: set[Any] = set()
    for message in messages:
        found |= {(call.name, _data(call.arguments)) for call in message.said.calls}
        found |= {result.text for result in message.said.results}
    return found


def _data(arguments: Any) -> bytes | str:
    """Give what arguments say, however they are written."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return str(arguments).strip()
    try:
        return json.dumps(arguments, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return dumps(arguments)
