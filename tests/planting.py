"""Writes request logs with known causes in them: each cause has a family of requests of its own, others are clean.

A family is a system text, tools, and conversations that call tools and go on for some turns. A cause changes how the
requests of its family are built, in one of the ways that it has; `Planted.without(codes)` writes the same log without
some causes. The true loss is told by replays of both logs, and by nothing that finds causes: for each request the tokens
that the log without causes has cached and this one has not, as far as this one holds them (`true_losses`). Where a family
has several causes, a request's loss is that of the one at which its prefix ends: of all that are mended alone, it is the
one that gives most back, and where none gives back a tenth, the first that is named (`true_shares`).
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, replace

from plantedcauses import CAUSES, Turn, deep
from plantedtext import NOUNS, TOPICS, VERBS, sentence, words

from prefixlint import pipeline


@dataclass(frozen=True)
class Planted:
    """A log of `size` requests. `codes` are the causes of each faulty family, joined by `+` where it has several.

    They begin at about request `begins`, and one of `spared` conversations has none (0: each has them).

    `skip` are causes that are left out; `clean` is the number of families without one.
    """

    seed: int
    codes: tuple
    size: int
    skip: frozenset = frozenset()
    clean: int = 2
    begins: int = 0
    spared: int = 0

    def without(self, *codes):
        return replace(self, skip=self.skip | set(codes))

    def mended(self):
        return self.without(*{code for kind in self.codes for code in kind.split("+")})

    def bodies(self):
        return [body for _, body in self._requests()]

    def owners(self):
        """Give for each request the causes of its family, None for a clean one."""
        return [kind for kind, _ in self._requests()]

    def _requests(self):
        rng = random.Random(self.seed)
        kinds = [*self.codes, *[None] * self.clean]
        families = [_Family(kind, rng.randrange(1 << 30), number, self) for number, kind in enumerate(kinds)]
        live = []

        def opened(step):
            number = rng.randrange(len(families))
            return kinds[number], families[number].conversation(rng.randrange(1 << 30), step)

        for step in range(self.size):
            if len(live) < 8 or rng.random() < 0.1:
                live.append(opened(step))
            at = rng.randrange(len(live))
            while (body := next(live[at][1], None)) is None:
                live[at] = opened(step)
            yield live[at][0], body

    def write(self, path):
        path.write_text("".join(json.dumps(body, ensure_ascii=False) + "\n" for body in self.bodies()), "utf-8")
        return path


class _Family:
    def __init__(self, kind, seed, number, planted):
        rng = random.Random(seed)
        codes = kind.split("+") if kind else ()
        self.ways = [(rng.choice(CAUSES[code]), code in planted.skip) for code in codes]
        self.begins, self.spared = planted.begins, planted.spared
        self.system = (
            f"You serve the {TOPICS[number % len(TOPICS)]} desk {'abcdefghij'[number % 10] * 3}.\n"
            + "\n".join(f"- {sentence(rng)}" for _ in range(40))
        )
        self.tools = [
            {
                "type": "function",
                "function": {
                    "name": f"{rng.choice(VERBS)}_{noun}",
                    "description": words(rng, 2),
                    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
                },
            }
            for noun in rng.sample(NOUNS, 5)
        ]
        self.talks = 0

    def conversation(self, seed, step):
        self.talks += 1
        talk, memo = self.talks, {}
        rng, noise = random.Random(seed), random.Random(seed + 1)
        history = []
        for number in range(rng.randrange(4, 9)):
            history.append({"role": "user", "content": f"{words(rng, 3)} Question {rng.randrange(10**6)}?"})
            messages = [{"role": "system", "content": self.system}, *history]
            yield self._built(
                {"model": "m", "tools": self.tools, "messages": messages}, number, step, noise, talk, memo
            )
            history += self._answer(rng)

    def _built(self, body, number, step, noise, talk, memo):
        body = deep(body)
        if step + number < self.begins or (self.spared and talk % self.spared == 0):
            return body
        for way, mended in self.ways:
            change = way.mended if mended else way.plant
            if change is not None:
                change(body, Turn(number, step + number, noise, talk, memo))
        return body

    def _answer(self, rng):
        ids = [f"call_{rng.randrange(16**12):012x}" for _ in range(2)]
        calls = [
            {
                "id": one,
                "type": "function",
                "function": {
                    "name": self.tools[k]["function"]["name"],
                    "arguments": json.dumps({"q": sentence(rng), "n": rng.randrange(99)}),
                },
            }
            for k, one in enumerate(ids)
        ]
        said = {"role": "assistant", "content": sentence(rng), "reasoning_content": words(rng, 3), "tool_calls": calls}
        results = [{"role": "tool", "tool_call_id": one, "content": words(rng, 12)} for one in ids]
        return [said, *results, {"role": "assistant", "content": words(rng, 4)}]


def planted(seed, size=2000, least=1, most=5):
    """Give a log with one to five causes of random kinds."""
    rng = random.Random(seed)
    return Planted(seed, tuple(rng.sample(sorted(CAUSES), rng.randint(least, most))), size)


def replayed(path, bodies, **options):
    """Analyse bodies: the result, and for each request its prompt tokens and those that SGLang has cached."""
    path.write_text("".join(json.dumps(body, ensure_ascii=False) + "\n" for body in bodies), "utf-8")
    lines = []
    options = {"why": float("inf"), "what_if": (), **options}
    result = pipeline.analyze([str(path)], pipeline.Options(**options), watch=pipeline.Watch(on_request=lines.append))
    return result, [(line.prompt_tokens, line.engines["sglang"][0]) for line in lines]


def true_losses(planted, counts, folder, **options):
    """Give the loss of each family's causes together: `counts` are those of the log as it is."""
    _, mended = replayed(folder / "mended.jsonl", planted.mended().bodies(), why=0, **options)
    losses = Counter()
    for owner, count, whole in zip(planted.owners(), counts, mended, strict=True):
        losses[owner] += _given_back(count, whole)
    return losses


def true_shares(planted, counts, folder, **options):
    """Give the loss of each cause, by its code: `counts` are those of the log as it is."""

    def without(*codes):
        path = folder / f"without {'+'.join(codes)}.jsonl"
        return replayed(path, planted.without(*codes).bodies(), why=0, **options)[1]

    every = sorted({code for kind in planted.codes for code in kind.split("+")})
    mended, alone = without(*every), {code: without(code) for code in every}
    losses = Counter()
    for number, (owner, count, whole) in enumerate(zip(planted.owners(), counts, mended, strict=True)):
        if owner is not None:
            lost = _given_back(count, whole)
            back = {code: _given_back(count, alone[code][number]) for code in owner.split("+")}
            losses[max(back, key=lambda code: back[code] if back[code] * 10 >= lost else 0)] += lost
    return losses


def _given_back(count, mended):
    """Count the tokens that a mended log has cached of a request, and that the request as it is holds and has not."""
    (prompt, cached), (kept, possible) = count, mended
    return max(0, min(possible - cached, (prompt - cached) - (kept - possible)))
