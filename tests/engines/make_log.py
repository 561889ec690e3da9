"""Write a request log of several applications, for replays through real engines: `make_log.py OUT [REQUESTS] [SEED]`.

One object a line: time, session, application, the body of a chat completion, and the answer that was given. There are

    desk      conversations with tools: calls, results, answers; each tenant has a salt of its own
    planner   conversations whose system text begins with a clock
    sorter    single requests behind the same examples, some of them twice
    advisor   long conversations, now and then with an edited first message

Everything is drawn from a seeded stream, so that the same arguments give the same bytes.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Body = dict[str, Any]

_TEXT = (
    "amber brook cedar delta ember frost grove harbor iris juniper kelp lagoon meadow north orchard pine quarry river "
    "spruce timber upland valley willow yarrow zenith Über naïve 42 3.14 snake_case 東京 🌲 don't"
)
WORDS = _TEXT.split()
START = datetime(2026, 3, 3, 8, 0, tzinfo=UTC)
STEP = timedelta(seconds=41)  # between two requests, so that a clock with minutes changes for most of them
TURNS = {"desk": 3, "planner": 3, "sorter": 1, "advisor": 5}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{title} of the parcel depot",
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]},
        },
    }
    for name, title, key in (("find_parcel", "Finds a parcel", "number"), ("list_routes", "Lists the routes", "place"))
]


@dataclass
class Conversation:
    """One conversation of an application, with the messages so far but for the system text."""

    application: str
    number: int
    salt: str | None = None
    messages: list[Body] = field(default_factory=list)
    turns: int = 0


def words(rng: random.Random, low: int, high: int) -> str:
    """Give some words, in one paragraph or two."""
    drawn = [rng.choice(WORDS) for _ in range(rng.randint(low, high))]
    if len(drawn) > 12 and rng.random() < 0.5:
        drawn[6] += "\n\n"
    return " ".join(drawn)


class Applications:
    """The applications, whose fixed texts are drawn once; system texts have some 75 words times `size`."""

    def __init__(self, rng: random.Random, *, clock: bool = True, size: int = 1) -> None:
        self._rng = rng
        self._clock = clock
        self._system = {name: f"You are the {name}. {words(rng, 60 * size, 90 * size)}" for name in TURNS}
        self._examples = [words(rng, 30, 40) for _ in range(2)]

    def system(self, conversation: Conversation, now: datetime) -> str:
        """Give the system text of a request."""
        text = self._system[conversation.application]
        if conversation.application == "planner" and self._clock:
            return f"Current time: {now:%Y-%m-%d %H:%M:%S}\n{text}"
        return text

    def ask(self, conversation: Conversation) -> None:
        """Add what the user, or a tool, says next."""
        rng, messages = self._rng, conversation.messages
        if conversation.application == "sorter":
            for example in self._examples:
                messages += [{"role": "user", "content": example}, {"role": "assistant", "content": "sorted"}]
        if messages and messages[-1].get("tool_calls"):
            call = messages[-1]["tool_calls"][0]
            result = json.dumps({"found": words(rng, 3, 9)}, ensure_ascii=False)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            return
        if conversation.application == "advisor" and len(messages) > 2 and rng.random() < 0.15:
            messages[0] = {"role": "user", "content": words(rng, 8, 25)}
        messages.append({"role": "user", "content": words(rng, 4, 30)})

    def answer(self, conversation: Conversation) -> Body:
        """Give the message that the model answered with."""
        rng = self._rng
        if conversation.application == "desk" and conversation.messages[-1]["role"] == "user" and rng.random() < 0.6:
            function = {"name": "find_parcel", "arguments": json.dumps({"number": str(rng.randint(100, 999))})}
            call = {"id": f"call-{conversation.number}-{conversation.turns}", "type": "function", "function": function}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"role": "assistant", "content": words(rng, 5, 40)}


def lines(requests: int, seed: int, *, clock: bool = True, size: int = 1, answers: bool = True) -> Iterator[Body]:
    """Give the objects of the log; without `answers`, what the model said is only in the turns that follow."""
    rng = random.Random(seed)
    applications = Applications(rng, clock=clock, size=size)
    running: list[Conversation] = []
    last: Body | None = None
    for number in range(requests):
        now = START + number * STEP
        if last is not None and rng.random() < 0.04:  # sent again, as clients do
            yield {**last, "timestamp": now.isoformat()}
            continue
        if not running or rng.random() < 0.35:
            name = rng.choice(list(TURNS))
            salt = f"tenant-{rng.randrange(2)}" if name == "desk" else None
            running.append(Conversation(name, number, salt))
        conversation = rng.choice(running)
        applications.ask(conversation)
        system = {"role": "system", "content": applications.system(conversation, now)}
        body: Body = {"model": "tiny-llama", "messages": [system, *conversation.messages]}
        if conversation.application == "desk":
            body["tools"] = TOOLS
        if conversation.salt is not None:
            body["cache_salt"] = conversation.salt
        answer = applications.answer(conversation)
        finish = "tool_calls" if answer.get("tool_calls") else "stop"
        last = {
            "timestamp": now.isoformat(),
            "application": conversation.application,
            "session_id": f"{conversation.application}-{conversation.number}",
            "request": body,
        }
        if answers:
            last["response"] = {"choices": [{"index": 0, "message": answer, "finish_reason": finish}]}
        yield last
        conversation.messages.append(answer)
        conversation.turns += 1
        if conversation.turns >= TURNS[conversation.application] and not answer.get("tool_calls"):
            running.remove(conversation)


def write(out: Path, requests: int = 240, seed: int = 7, **options: Any) -> None:
    """Write a log; the options are those of `lines`."""
    with out.open("w", encoding="utf-8") as file:
        for line in lines(requests, seed, **options):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]), *map(int, sys.argv[2:]))
