"""Writes request logs with known causes in them: each cause has a family of requests of its own, others are clean.

A family is a system text, tools, and conversations that call tools and go on for some turns. A cause changes how the
requests of its family are built; `Planted.without(code)` writes the same log without one cause, so that its true cost is
the difference of the two logs.
"""

import copy
import json
import random
import uuid
from dataclasses import dataclass, field

_TOPICS = [
    "ferries",
    "museums",
    "libraries",
    "orchards",
    "bakeries",
    "harbours",
    "glaciers",
    "theatres",
    "vineyards",
    "stations",
    "gardens",
    "markets",
]
_VERBS = [
    "plan",
    "explain",
    "compare",
    "check",
    "translate",
    "summarise",
    "price",
    "book",
    "cancel",
    "reorder",
    "inspect",
    "measure",
    "describe",
    "repair",
]
_NOUNS = [
    "ticket",
    "route",
    "pier",
    "ledger",
    "invoice",
    "sail",
    "engine",
    "kettle",
    "lantern",
    "map",
    "crate",
    "window",
    "bridge",
    "tunnel",
    "meadow",
    "saddle",
]


@dataclass
class Turn:
    """What a cause may look at: `number` in the conversation, `step` in the log, a stream of random numbers."""

    number: int
    step: int
    rng: random.Random
    talk: int
    memo: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Planted:
    """A log: its bodies in order, and the family of each, as the code of its cause (None for a clean one)."""

    seed: int
    codes: tuple
    size: int
    skip: frozenset = frozenset()

    def without(self, code):
        return Planted(self.seed, self.codes, self.size, self.skip | {code})

    def bodies(self):
        return list(self._bodies())

    def _bodies(self):
        rng = random.Random(self.seed)
        kinds = [*self.codes, None, None]
        families = [
            _Family(code if code not in self.skip else None, rng.randrange(1 << 30), i) for i, code in enumerate(kinds)
        ]
        live = []
        for step in range(self.size):
            if len(live) < 8 or rng.random() < 0.1:
                live.append(families[rng.randrange(len(families))].conversation(rng.randrange(1 << 30), step))
            at = rng.randrange(len(live))
            body = next(live[at], None)
            while body is None:
                live[at] = families[rng.randrange(len(families))].conversation(rng.randrange(1 << 30), step)
                body = next(live[at], None)
            yield body

    def write(self, path):
        path.write_text(
            "".join(json.dumps(body, ensure_ascii=False) + "\n" for body in self.bodies()), encoding="utf-8"
        )
        return path


def _sentence(rng):
    return f"{rng.choice(_VERBS).capitalize()} the {rng.choice(_NOUNS)} of the {rng.choice(_TOPICS)} near the {rng.choice(_NOUNS)}."


def _words(rng, count):
    return " ".join(_sentence(rng) for _ in range(count))


class _Family:
    def __init__(self, code, seed, number):
        self.code = code
        rng = random.Random(seed)
        self.system = (
            f"You serve the {_TOPICS[number % len(_TOPICS)]} desk {'abcdefghij'[number % 10] * 3}.\n"
            + "\n".join(f"- {_sentence(rng)}" for _ in range(40))
        )
        self.tools = [
            {
                "type": "function",
                "function": {
                    "name": f"{rng.choice(_VERBS)}_{noun}",
                    "description": _words(rng, 2),
                    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
                },
            }
            for noun in rng.sample(_NOUNS, 5)
        ]
        self.talks = 0

    def conversation(self, seed, step):
        self.talks += 1
        talk = self.talks
        rng, noise = random.Random(seed), random.Random(seed + 1)
        history = []
        memo = {}
        for number in range(rng.randrange(4, 9)):
            history.append({"role": "user", "content": f"{_words(rng, 3)} Question {rng.randrange(10**6)}?"})
            turn = Turn(number, step + number, noise, talk, memo)
            body = {
                "model": "m",
                "tools": copy.deepcopy(self.tools),
                "messages": [{"role": "system", "content": self.system}, *copy.deepcopy(history)],
            }
            yield _plant(self.code, body, turn)
            ids = [f"call_{rng.randrange(16**12):012x}" for _ in range(2)]
            history.append(
                {
                    "role": "assistant",
                    "content": _sentence(rng),
                    "reasoning_content": _words(rng, 3),
                    "tool_calls": [
                        {
                            "id": one,
                            "type": "function",
                            "function": {
                                "name": self.tools[k]["function"]["name"],
                                "arguments": json.dumps({"q": _sentence(rng), "n": rng.randrange(99)}),
                            },
                        }
                        for k, one in enumerate(ids)
                    ],
                }
            )
            history += [{"role": "tool", "tool_call_id": one, "content": _words(rng, 12)} for one in ids]
            history.append({"role": "assistant", "content": _words(rng, 4)})


def _head(text):
    def change(body, turn):
        body["messages"][0]["content"] = text(turn) + "\n" + body["messages"][0]["content"]

    return change


def _clock(t):
    s = 30000 + t.step * 7 + t.rng.randrange(3)
    return f"[2031-03-04T{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}Z]"


def _tool_order(body, turn):
    turn.rng.shuffle(body["tools"])


def _tool_set(body, turn):
    body["tools"] = body["tools"][: 2 + turn.number % 3]


def _tool_text(body, turn):
    body["tools"][1]["function"]["description"] += f" Console: https://c.example/s/{turn.rng.randrange(16**8):08x}"


def _ephemeral(body, turn):
    body["messages"][-1]["content"] = (
        f"<env>\nopen file: src/m{turn.number}.py\nline: {turn.rng.randrange(900)}\n</env>\n"
        + body["messages"][-1]["content"]
    )


def _moving(body, turn):
    text = "<doc>\n" + _words(random.Random(turn.talk), 8) + "\n</doc>\n"
    body["messages"][-1]["content"] = text + body["messages"][-1]["content"]


def _window(body, turn):
    rest = body["messages"][1:]
    body["messages"] = body["messages"][:1] + rest[-7:]


def _cleared(body, turn):
    tools = [m for m in body["messages"] if m["role"] == "tool"]
    for message in tools[:-2]:
        message["content"] = "[old tool result cleared]"


def _ids(body, turn):
    names = {}
    for message in body["messages"]:
        for call in message.get("tool_calls", ()):
            names[call["id"]] = call["id"] = (
                f"call_{turn.rng.randrange(16**12):012x}" if call["id"] not in names else call["id"]
            )
    fresh = iter([c["id"] for m in body["messages"] for c in m.get("tool_calls", ())])
    for message in body["messages"]:
        if message["role"] == "tool":
            message["tool_call_id"] = next(fresh)


def _reasoning(body, turn):
    last = max((i for i, m in enumerate(body["messages"]) if m.get("tool_calls")), default=-1)
    for index, message in enumerate(body["messages"]):
        if index != last:
            message.pop("reasoning_content", None)


def _reserialised(body, turn):
    calls = [c for m in body["messages"] for c in m.get("tool_calls", ())]
    for call in calls[:-2]:
        call["function"]["arguments"] = json.dumps(
            json.loads(call["function"]["arguments"]), sort_keys=True, separators=(",", ":")
        )


def _shape(body, turn):
    message = body["messages"][-1]
    message["content"] = message["content"] + "  \n"


def _hoisted(body, turn):
    if turn.number:
        body["messages"][0]["content"] += "".join(
            f"\nReminder {chr(97 + k)}: use the list." for k in range(turn.number)
        )


def _results(body, turn):
    swap = [i for i, m in enumerate(body["messages"]) if m["role"] == "tool"][:-1:2]
    for i in swap[-1:]:
        body["messages"][i], body["messages"][i + 1] = body["messages"][i + 1], body["messages"][i]


def _retrieval(body, turn):
    head = body["messages"][0]
    facts = "\n".join(f"* {_sentence(turn.rng)}" for _ in range(5))
    first, rest = head["content"].split("\n", 1)
    head["content"] = f"{first}\nKnown facts:\n{facts}\n{rest}"


def _json_state(body, turn):
    items = [("zone", "north"), ("plan", "basic"), ("seats", 40), ("lang", "da")]
    turn.rng.shuffle(items)
    body["messages"][0]["content"] = f"State: {json.dumps(dict(items))}\n" + body["messages"][0]["content"]


def _identity(body, turn):
    body["messages"][0]["content"] = f"Customer {1000 + turn.talk * 17}.\n" + body["messages"][0]["content"]


def _attachment(body, turn):
    first = body["messages"][1]
    url = f"https://f.example/k{turn.talk}.png?X-Amz-Date=20310101T{turn.rng.randrange(10**6):06}Z&X-Amz-Signature={turn.rng.randrange(16**16):016x}"
    first["content"] = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": first["content"]}]


CAUSES = {
    "PFX101": _head(_clock),
    "PFX103": _head(lambda t: f"Notes: plan.md (changed {3 + t.step % 50} minutes ago)"),
    "PFX104": _head(lambda t: f"[req {uuid.UUID(int=t.rng.getrandbits(128), version=4)}]"),
    "PFX105": _identity,
    "PFX106": _head(lambda t: f"Working directory: /tmp/run{t.rng.randrange(16**6):06x}/src"),
    "PFX107": _head(lambda t: f"Budget left: {9000 - t.step} tokens"),
    "PFX110": _head(lambda t: f"x-relay-meta: build=5.2; entry=cli; sum={t.rng.randrange(16**5):05x};"),
    "PFX202": _retrieval,
    "PFX203": _moving,
    "PFX302": _json_state,
    "PFX303": _reserialised,
    "PFX304": _tool_order,
    "PFX305": _tool_set,
    "PFX306": _tool_text,
    "PFX401": _cleared,
    "PFX402": _window,
    "PFX403": _reasoning,
    "PFX404": _ephemeral,
    "PFX405": _ids,
    "PFX406": _shape,
    "PFX407": _hoisted,
    "PFX408": _results,
    "PFX409": _attachment,
}


def _plant(code, body, turn):
    if code is not None:
        CAUSES[code](body, turn)
    return body


def planted(seed, size=2000, least=1, most=5):
    """Give a log with one to five causes of random kinds."""
    rng = random.Random(seed)
    codes = tuple(rng.sample(sorted(CAUSES), rng.randint(least, most)))
    return Planted(seed, codes, size)
