"""Experiments that each find one rule of a server's prefix cache, with a few prompts of their own.

An experiment takes the `Bench` and gives a `Rule`; what later ones need, it leaves there. Prompts of one experiment
share nothing with those of another. Where prompts are words and not ids, lengths are what the server counts, and where
two prompts part is known to a few tokens only: what then follows for a rule is less, and said so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from prefixlint.engines import Engine
from prefixlint.verify.asker import Answer, Asker, Prompt
from prefixlint.verify.probed import Rule, Seen
from prefixlint.verify.targets import About

LENGTHS = (512, 1280, 2304, 4608)
"""Prompt lengths that are tried until one is found again: minimums in use are 0, 1,024, 2,048 and 4,096 tokens."""
_LARGEST_STEP = 2048  # tokens: no cache in use has larger blocks
_ROOM = 64  # tokens of the context that a prompt leaves free
_PARTS = (
    1,
    0.925,
    0.898,
    0.697,
)  # of a prompt, where others leave it: nearly all steps up to 256 are told apart by these
_NARROWED = 4  # times that the interval of the minimum is halved
_AT_ONCE = 4
_OUTPUT = 48  # tokens that are generated to be found again, or two blocks
_SLOW_OUTPUT = 96  # tokens that are generated while another request comes
MOST_REQUESTS = 36

_MATCH = {"longest_prefix": "longest prefix", "slot": "longest prefix", "marked_breakpoint": "whole prompts or marks",
          "whole_unit": "whole prompts or marks"}  # fmt: skip
_CAPS = {
    "none": "all of a prompt may be cached",
    "length_minus_one": "all but one token, then rounded down",
    "after_rounding": "whole blocks, but for one token",
}
_VISIBLE = {
    "at_once": "arrival", "scheduling": "scheduling", "prefill_end": "the end of prefill",
    "first_token": "the first token", "response_end": "the end of the answer",
}  # fmt: skip
_STORED = {"prompt": "the prompt", "prompt_and_output": "the prompt and what was generated", "marked": "what is marked"}


@dataclass(slots=True)
class Bench:
    """What experiments work with, and what earlier ones found.

    `engine` is the profile that the server is compared with, None where there is none; `wait` how long an entry is left
    alone, in seconds. `length` is that of prompts that are found again, `step` the granularity, `head` the tokens that
    all prompts share (of a chat template), `tells` whether cached tokens are told at all.
    """

    asker: Asker
    about: About
    engine: Engine | None
    wait: float
    tells: bool = False
    length: int = 0
    step: int | None = None
    head: int = 0
    prompt: Prompt = ()
    again: Answer | None = None
    seen: list[Seen] = field(default_factory=list)

    def ask(self, what: str, prompt: Prompt, shared: int | None = 0, **options: object) -> Answer:
        """Send a prompt and take note of what it showed."""
        answer = self.asker.ask(prompt, **options)  # type: ignore[arg-type]  # those of Asker.ask
        self.note(what, answer, shared)
        return answer

    def note(self, what: str, answer: Answer, shared: int | None) -> None:
        """Take note of an answer."""
        known = shared if self.asker.exact else None
        self.seen.append(Seen(what, answer.tokens, known, answer.cached))

    def rule(self, name: str, measured: str | None, note: str = "", **more: object) -> Rule:
        """Give a rule with what was seen since the last one."""
        seen, self.seen = tuple(self.seen), []
        if more.get("expected") is None:
            more["source"] = None
        return Rule(name, measured, note=note, seen=seen, **more)  # type: ignore[arg-type]  # fields of Rule

    def hit(self, answer: Answer) -> bool:
        """Whether more came from the cache than what all prompts share."""
        return answer.cached is not None and answer.cached > self.head

    @property
    def granularity(self) -> tuple[int | None, str | None]:
        """What the granularity should be: the server's own setting, else the profile's, and which of them it is."""
        if self.about.block_size is not None:
            return self.about.block_size, "server"
        return (self.engine.granularity, "profile") if self.engine else (None, None)


def reported(bench: Bench) -> Rule:
    """Send prompts twice, longer ones until one is found again, and see whether cached tokens are told."""
    most = (bench.about.context or math.inf) - _ROOM
    answer: Answer | None = None
    for length in [n for n in LENGTHS if n <= most] or [int(most)]:
        prompt = bench.asker.fresh(length)
        cold = bench.ask("first time", prompt)
        answer = bench.ask("again", prompt, length)
        bench.tells = bench.tells or answer.cached is not None or cold.cached is not None
        if not bench.tells:
            break
        bench.head = cold.cached or 0 if bench.asker.exact else _shared_by_all(bench, length)
        bench.prompt, bench.again, bench.length = prompt, answer, length
        if bench.hit(answer):
            break
    told_so = bench.about.reports_cached
    expected = None if told_so is None else "yes" if told_so else "no"
    source = "server" if expected else None
    if not bench.tells:
        note = "; ".join(bench.about.notes) or "its answers do not tell, and it has no counters that do"
        return bench.rule("reported", "no", note, expected=expected, source=source, agrees=_same("no", expected))
    told = "yes" if answer is not None and answer.measured.cached_tokens is not None else "by its counters only"
    found = bench.hit(answer) if answer is not None else False
    note = (
        "" if found else f"a prompt of {bench.length:,} tokens was not found again: the cache is off, or keeps nothing"
    )
    agrees = _same(told, expected) if told == "yes" else None
    return bench.rule("reported", told, note, expected=expected, source=source, agrees=agrees)


def _shared_by_all(bench: Bench, length: int) -> int:
    """Give what a prompt finds that has nothing in common with others but the chat template."""
    return bench.ask("another prompt", bench.asker.fresh(length)).cached or 0


def granularity(bench: Bench) -> list[Rule]:
    """Leave a cached prompt at several places, and see to which of its tokens hits are rounded down."""
    if bench.again is None or not bench.hit(bench.again):
        return [bench.rule(name, None, "no prompt was found again") for name in ("match", "granularity")]
    size = len(bench.prompt)
    places = [size - 1 if share == 1 else int(share * size) for share in _PARTS]
    hits = []
    for at in places:
        answer = bench.ask("leaves the first", bench.asker.leaving(bench.prompt, at), at)
        hits.append((at, answer.cached))
    known = [(at, cached) for at, cached in hits if cached is not None]
    expected = _MATCH[bench.engine.match] if bench.engine else None
    if not any(cached > bench.head for _, cached in known):
        measured = "whole prompts or marks"
        match = bench.rule("match", measured, expected=expected, source="profile", agrees=_same(measured, expected))
        return [match, bench.rule("granularity", None, "no part of a prompt was found, so there is nothing to measure")]
    steps = _steps(known, bench)
    measured = "longest prefix"
    match = bench.rule("match", measured, expected=expected, source="profile", agrees=_same(measured, expected))
    wanted, source = bench.granularity
    shown = None if wanted is None else f"{wanted:,} {'token' if wanted == 1 else 'tokens'}"
    if not steps:
        note = "what was found of the prompts fits no block size: other requests may have emptied the cache meanwhile"
        return [match, bench.rule("granularity", None, note, expected=shown, source=source)]
    bench.step = wanted if wanted in steps else steps[0]
    note = "" if len(steps) == 1 else f"{', '.join(map(str, steps[1:6]))} would show the same"
    words = f"{bench.step:,} {'token' if bench.step == 1 else 'tokens'}"
    agrees = None if wanted is None else wanted in steps
    return [match, Rule("granularity", words, shown, source, agrees, note, match.seen)]


def _steps(hits: Sequence[tuple[int, int]], bench: Bench) -> list[int]:
    """Give the granularities that explain hits: places rounded down; of words is known only that they are multiples."""
    if not bench.asker.exact:
        found = [cached for _, cached in hits if cached > bench.head]
        repeated = bench.again.cached if bench.again is not None else None
        step = math.gcd(*found, *([repeated] if repeated and repeated % found[0] == 0 else []))
        return [step] if step > 1 else [1]
    # a place at which nothing was found may lie below a minimum, and then tells nothing of blocks
    told = [(at, cached) for at, cached in hits if cached > 0]
    return [step for step in range(1, _LARGEST_STEP + 1) if all(at // step * step == cached for at, cached in told)]


def cap(bench: Bench) -> Rule:
    """Repeat a prompt of whole blocks, and see what of its last one is computed again."""
    expected = bench.engine.cap if bench.engine else None
    shown = _CAPS[expected] if expected else None
    if bench.step is None:
        return bench.rule("cap", None, "not known without the granularity", expected=shown, source="profile")
    answer = bench.again
    if answer is None or answer.tokens is None or answer.tokens % bench.step:
        size = -(-bench.length // bench.step) * bench.step
        prompt = bench.asker.fresh(size)
        cold = bench.ask("whole blocks", prompt)
        if not bench.asker.exact and cold.tokens is not None:
            prompt = (*prompt, *bench.asker.fresh(-cold.tokens % bench.step))
            bench.ask("whole blocks", prompt, None)
        answer = bench.ask("again", prompt, size)
    tokens, cached = answer.tokens, answer.cached
    if tokens is None or cached is None or tokens % bench.step:
        return bench.rule("cap", None, "no prompt of whole blocks could be made", expected=shown, source="profile")
    fits = [name for name, value in _capped(tokens, bench.step).items() if value == cached]
    if not fits:
        note = f"{cached:,} of {tokens:,} tokens came from the cache, which fits no rule that is known"
        return bench.rule("cap", None, note, expected=shown, source="profile")
    chosen = expected if expected in fits else fits[0]
    agrees = None if expected is None else expected in fits
    note = f"a prompt of {tokens:,} tokens, again: {cached:,} from the cache"
    return bench.rule("cap", _CAPS[chosen], note, expected=shown, source="profile", agrees=agrees)


def _capped(tokens: int, step: int) -> dict[str, int]:
    """Give what each rule leaves of a prompt that is cached whole."""
    whole = tokens // step * step
    return {"none": whole, "length_minus_one": (tokens - 1) // step * step, "after_rounding": min(whole, tokens - 1)}


def minimum(bench: Bench) -> Rule:
    """Repeat short prompts and longer ones, and see from which length on they are found again."""
    least = bench.engine.minimum if bench.engine else None
    if bench.step is None or bench.again is None:
        return bench.rule("minimum", None, "no prompt was found again")
    shortest = bench.step + 1 if bench.asker.exact else max(bench.step + 1, 16)
    missed, found = shortest - 1, bench.length
    tried = [n for n in (shortest, 128, 512) if shortest <= n < bench.length]
    shown = bench.length
    for length in tried:
        if _found_again(bench, length):
            found, shown = length, bench.seen[-1].prompt_tokens or length
            break
        missed = length
    if found != tried[0]:
        for _ in range(_NARROWED):
            middle = -(-((missed + found) // 2) // bench.step) * bench.step + 1
            if not missed < middle < found:
                break
            missed, found = (missed, middle) if _found_again(bench, middle) else (middle, found)
    expected = None if least is None else f"{least:,} tokens" if least else "none"
    if tried and found == tried[0]:
        agrees = None if least is None else least <= found
        note = f"a prompt of {shown:,} tokens is found again"
        return bench.rule("minimum", "none", note, expected=expected, source="profile", agrees=agrees)
    agrees = None if least is None else missed < max(least, shortest) <= found
    measured = f"more than {missed:,}, at most {found:,} tokens"
    return bench.rule("minimum", measured, expected=expected, source="profile", agrees=agrees)


def _found_again(bench: Bench, length: int) -> bool:
    prompt = bench.asker.fresh(length)
    bench.ask("first time", prompt)
    return bench.hit(bench.ask("again", prompt, length))


def stored(bench: Bench) -> Rule:
    """Generate some tokens, send them back as part of the prompt, and see whether they were kept."""
    expected = _STORED[bench.engine.stored] if bench.engine else None
    if not bench.asker.exact or bench.step is None:
        return bench.rule("stored", None, "needs prompts of token ids", expected=expected, source="profile")
    size = -(-max(bench.length // 2, 256) // bench.step) * bench.step
    output = max(_OUTPUT, 2 * bench.step + 2)
    prompt = bench.asker.fresh(size)
    first = bench.ask("generates", prompt, output=output, ids=True)
    made = first.measured.output_ids
    if made is None or len(made) < bench.step + 2:
        return bench.rule("stored", None, "the server does not tell which tokens it generated", expected=expected)
    follow = bench.asker.leaving((*prompt, *made), size + len(made))
    second = bench.ask("goes on", follow, size + len(made))
    if second.cached is None or second.cached < size - bench.step:
        return bench.rule("stored", None, "the prompt itself was not found again", expected=expected)
    measured = _STORED["prompt_and_output" if second.cached > size else "prompt"]
    note = f"{size:,} prompt and {len(made)} generated tokens: {second.cached:,} from the cache"
    if second.cached == (size + len(made) - 1) // bench.step * bench.step < size + len(made):
        note += "; the last generated token is not kept" if bench.step == 1 else ""
    agrees = _same(measured, expected)
    return bench.rule("stored", measured, note, expected=expected, source="profile", agrees=agrees)


def visible(bench: Bench) -> Rule:
    """Ask for a prompt while it is being answered, and for one several times at once: to see when it can be found."""
    value = bench.engine.visible if bench.engine else None
    expected = _VISIBLE[value] if value else None
    prompt = bench.asker.fresh(bench.length)
    slow, second = bench.asker.during(prompt, _SLOW_OUTPUT)
    bench.note("generates meanwhile", slow, 0)
    bench.note("while it generates", second, len(prompt))
    overlapped = second.first is not None and second.first < slow.done
    if second.cached is None:
        return bench.rule("visible", None, "cached tokens are not told for requests at once", expected=expected)
    at_once = bench.asker.together([bench.asker.fresh(bench.length)] * _AT_ONCE)
    for answer in at_once:
        bench.note("at once", answer, len(prompt))
    fits = _visible_from(bench, bench.hit(second), at_once) if overlapped else []
    cached = ", ".join("?" if answer.cached is None else f"{answer.cached:,}" for answer in at_once)
    note = f"{_AT_ONCE} identical prompts at once: {cached} from the cache"
    if not overlapped:
        note += "; the server answers one request after the other, which shows nothing of the moment"
    if not fits:
        return bench.rule("visible", None, note, expected=expected, source="profile")
    measured = _VISIBLE[fits[0]] if len(fits) == 1 else f"between {_VISIBLE[fits[0]]} and {_VISIBLE[fits[-1]]}"
    agrees = None if value is None else value in fits
    return bench.rule("visible", measured, note, expected=expected, source="profile", agrees=agrees)


def _visible_from(bench: Bench, meanwhile: bool, at_once: Sequence[Answer]) -> list[str]:
    """Give the moments that explain what was found; they are in the order of time."""
    if not meanwhile:
        return ["response_end"]
    if any(answer.cached is None for answer in at_once):
        return ["at_once", "scheduling", "prefill_end", "first_token"]
    misses = sum(not bench.hit(answer) for answer in at_once)
    if misses == 0:
        return []
    # all but one found it: they came late enough for any of these; several did not: it was not there when they began
    return ["prefill_end", "first_token"] if misses > 1 else ["at_once", "scheduling", "prefill_end", "first_token"]


def isolation(bench: Bench) -> Rule:
    """Ask for a cached prompt in another namespace: it must not be found there, and still be in its own."""
    if bench.asker.salt is None:
        return bench.rule("isolation", None, "the server has none")
    prompt = bench.asker.fresh(bench.length)
    bench.ask("first time", prompt)
    other = bench.ask("other namespace", prompt, salt=f"{bench.asker.salt}-other")
    same = bench.ask("its own again", prompt, len(prompt))
    if not bench.hit(same) or other.cached is None:
        return bench.rule("isolation", None, "the prompt itself was not found again")
    measured = "shared" if bench.hit(other) else "separate"
    known = bool(bench.engine and set(bench.engine.isolation) & {"cache_salt", "extra_key"})
    expected = "separate" if known else None
    agrees = _same(measured, expected)
    return bench.rule("isolation", measured, expected=expected, source="profile", agrees=agrees)


def lifetime(bench: Bench) -> Rule:
    """Leave a cached prompt alone for a while. That it is still there says little of how long it stays."""
    engine = bench.engine
    ttl = engine.ttl if engine else None
    expected = None
    if engine is not None:
        expected = f"{ttl:g} s" if ttl else {"memory": "until its room is needed"}.get(engine.lifetime)
    prompt = bench.asker.fresh(bench.length)
    bench.ask("first time", prompt)
    time.sleep(bench.wait)
    kept = bench.hit(bench.ask("later", prompt, len(prompt)))
    if kept:
        agrees = None if expected is None else True
        note = "--wait S leaves it alone for longer"
        return bench.rule(
            "lifetime", f"{bench.wait:g} s or longer", note, expected=expected, source="profile", agrees=agrees
        )
    agrees = None if expected is None else bool(ttl and ttl <= bench.wait)
    note = "it was gone: it expired, or other requests needed its room"
    return bench.rule(
        "lifetime", f"less than {bench.wait:g} s", note, expected=expected, source="profile", agrees=agrees
    )


def _same(measured: str, expected: str | None) -> bool | None:
    return None if expected is None else measured == expected
