# ruff: noqa: SIM905 - lists of words read better as text
"""Write a request log as a company with eight applications on one model would have it; the same seed gives the same bytes.

    python tests/benchmarks/generate.py --requests 10000 --seed 1 -o log.jsonl

One OpenAI chat body a line, in time order, with `timestamp` (s since the epoch), `session_id` and `request_id` beside it.
Sessions overlap: a turn of one lies between turns of others. With the default shape 10,000 requests are about 105 MB and
20 million tokens, 2,000 a request, of which 29 % is distinct text; the rest is repeated, as in real logs.

Each application has another habit, because those decide what a prefix cache can serve and what a reader has to do:

    helpdesk    a fixed system prompt and growing conversations
    dispatch    the clock at the top of the system prompt
    concierge   the user's name in the first sentence of the system prompt
    operations  eight tools in a fixed order, tool calls and their results
    storefront  the same tools in an order that changes from request to request
    handbook    three retrieved passages before the question, from a pool of four hundred
    triage      eight worked examples, always the same
    drafting    eight worked examples, drawn anew for each request
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import orjson

Json = dict[str, Any]

# 2 March 2026, 08:00 UTC: any fixed moment will do.
START = 1772438400.0
# Sessions begin this many seconds apart on average; with about four turns a minute apart, some hundred overlap.
MEAN_GAP_BETWEEN_SESSIONS = 2.0
MEAN_GAP_BETWEEN_TURNS = 45.0
# Sentences are drawn from a pool: making each from words would cost more than everything else together.
POOL_SENTENCES = 20_000

NOUNS = """account address agreement airport amount answer apartment appointment article attachment balance bank basket
battery bedroom bicycle bill boarding booking border bottle branch bridge budget building bundle cable calendar camera
campaign carrier catalogue category centre certificate change channel charge checkout city claim clerk client code colour
comment company complaint condition confirmation connection contract copy corridor coupon courier credit customer cycle
damage date day deadline debit decision defect delay delivery department deposit desk detail device discount district
document door draft driver duty edition effect email employee engine entry error estimate event example exception exchange
expense expiry factory feature fee field file filter firmware flight floor folder form fridge fuel garden gate gateway goods
guest guide handle harbour heating holiday hotel hour identifier image income index inspection instruction insurance invoice
island item journey key kitchen label ladder lamp language law leak lease ledger letter level library licence lift limit line
link list loan locker lorry machine mailbox manager manual map margin market material measure member memo menu message meter
method minute mistake model module month mortgage motor network note notice number object offer office operator option order
owner package page panel parcel part partner passenger password path payment penalty permit person phone photo picture pipe
place plan platform player policy port postcode poster power premium price printer problem procedure process product profile
project proof property provider pump purchase quality quantity queue question quote rack radiator railway range rate reason
receipt recipe record refund region registry release reminder rental repair replacement reply report request reservation
response result return review reward ring river road roof room route rule safety sale sample schedule school screen screw
search season seat section sender sensor server service session setting shelf shipment shop shuttle signal site size slot
software solution source spare staff stage statement station status step stock storage store street student subscription
summary supplier supply surface switch system table tariff task tax team tenant term terminal test theft ticket time title
token tool total town track trade traffic trailer train transfer translation transport trip truck type update upgrade user
valley value van vehicle vendor version village visit visitor voucher wall warehouse warning warranty water week weight wheel
window winter wire witness worker workshop year zone""".split()

VERBS = """accepts adds adjusts allows answers applies approves arranges assigns attaches avoids begins books breaks brings
calls cancels carries changes charges checks cleans clears closes collects combines compares completes confirms connects
contains continues controls copies corrects counts covers creates cuts decides declines delivers describes differs divides
draws drops empties ends enters estimates examines excludes expects explains extends fails fills finds finishes fits fixes
follows forwards gathers gives grants groups handles helps holds identifies ignores includes increases informs inspects
installs invites issues joins keeps labels lacks leaves lends lets lists loads locates locks loses makes manages marks
matches measures mentions merges misses moves names needs notes notices numbers offers opens orders outlines owns packs pays
picks places plans points posts prepares presents prevents prints produces promises proposes protects proves provides pulls
quotes raises reaches reads receives records reduces refers refuses registers rejects releases remains removes repairs
repeats replaces reports requests requires reserves resolves returns reverses reviews saves scans schedules searches selects
sells sends separates serves settles shares ships shows signs sorts splits starts stays stops stores submits suggests
supplies supports tests tracks transfers translates travels turns updates uses verifies visits waits warns weighs writes
""".split()

ADJECTIVES = """able absent accurate active additional annual automatic available average basic blank blue brief broken busy
careful central certain cheap clean clear closed cold common complete correct current daily damaged deep delayed different
difficult digital direct double dry due early easy electric empty entire equal essential exact expensive extra fair false
familiar fast final fine firm fixed flat foreign formal former free fresh front full general gentle global good green half
handy heavy hidden high honest hot hourly ideal important inner joint known large last late legal light likely limited local
long loose lost low main major manual minor missing mobile modern monthly narrow national necessary neutral new next noisy
normal numeric odd official old open optional ordinary original outer overdue paid partial past pending perfect permanent
personal plain polite poor possible postal practical precise present previous private prompt proper public quick quiet rapid
rare raw ready real recent red regular related relevant remote repeated round rural safe second secure separate serious
sharp short silent similar simple single slow small smart solid special specific spare stable standard steady strict strong
sudden suitable temporary thick thin third tidy total unclear unpaid unusual upper urgent urban usable useful valid visible
warm weak weekly wet white whole wide written wrong yearly""".split()

FRAMES = (
    "The {a} {n} {v} the {n} before the {n} {v} it.",
    "If the {n} is {a}, the {n} {v} a {a} {n}.",
    "Every {a} {n} {v} one {n} and {d} {n}s at most.",
    "When a {n} {v} the {n}, the {n} of the {n} stays {a} for {d} days.",
    "No {n} {v} without a {a} {n}; see section {d}.{d}.",
    "A {n} from {p} {v} the {a} {n}, although the {n} was {a}.",
    "Our {n} {v} {n}s up to €{d}.50, which the {n} {v} within {d} hours.",
    "Please say whether the {n} {v} the {n} (reference {c}-{d}).",
    "Only the {a} {n} counts: the {n} of {p} {v} a {n} on the {d}th.",
    "In {p} the {n} {v}, and then the {a} {n} {v} the {n} again.",
    "{p}’s {n} {v} {a} {n}s; the {n} doesn't.",
    "Write to {c}@example.com when the {n} {v} the {a} {n}.",
)
PEOPLE = """Maria Ortega|Jonas Lindqvist|Aiko Tanaka|Samuel Okafor|Priya Raman|Léa Fournier|Tomasz Zieliński|Fatima Haddad
|Oluwaseun Balogun|Ingrid Solberg|Marco Bellini|Nguyễn Thị Lan|Daniel Cohen|Sofía Herrera|Björn Karlsson|Chen Wei
|Elena Popescu|Yusuf Demir|Grace Mwangi|Henrik Jensen""".replace("\n", "").split("|")
PLACES = (
    "Lisbon Tromsø Zürich Kraków Porto Antwerp Osaka Nairobi Montréal Cardiff Valencia Tallinn Göteborg Izmir".split()
)
CODES = "alder birch cedar delta ember fjord grove haven inlet juniper kelp lagoon meadow north".split()
WORDS = {"a": ADJECTIVES, "n": NOUNS, "v": VERBS, "p": PLACES, "c": CODES}
# Longer words are the likelier ones, so that a token has some five bytes, as in the English of real prompts.
WEIGHTS = {key: list(itertools.accumulate(len(word) ** 4 for word in words)) for key, words in WORDS.items()}


class Writer:
    """Draws English-looking text. All of it comes from one random stream, so a seed fixes everything."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.pool = [self._sentence() for _ in range(POOL_SENTENCES)]

    def _sentence(self) -> str:
        out = []
        for piece in _pieces(self.rng.choice(FRAMES)):
            if not piece.startswith("{"):
                out.append(piece)
            elif piece == "{d}":
                out.append(str(self.rng.randint(2, 29)))
            else:
                out.append(self.rng.choices(WORDS[piece[1]], cum_weights=WEIGHTS[piece[1]])[0])
        return "".join(out)

    def text(self, tokens: int, *, paragraph: int = 6) -> str:
        """Give text of about this many tokens (a sentence has about 13.5 with a 128k vocabulary), a blank line between paragraphs."""
        count = max(1, round(tokens / 13.5))
        sentences = self.rng.choices(self.pool, k=count)
        blocks = (" ".join(sentences[i : i + paragraph]) for i in range(0, count, paragraph))
        return "\n\n".join(blocks)

    def around(self, tokens: int) -> str:
        """Give text whose length varies between half and one and a half times `tokens`."""
        return self.text(round(tokens * self.rng.uniform(0.5, 1.5)))

    def tool(self, name: str) -> Json:
        """Give a function tool with four or five described parameters, about 160 tokens."""
        properties = {
            f"{self.rng.choice(NOUNS)}_{self.rng.choice(NOUNS)}": {
                "type": self.rng.choice(["string", "integer", "boolean"]),
                "description": self.rng.choice(self.pool),
            }
            for _ in range(self.rng.randint(4, 5))
        }
        parameters = {"type": "object", "properties": properties, "required": sorted(properties)[:2]}
        return {
            "type": "function",
            "function": {"name": name, "description": self.text(27), "parameters": parameters},
        }


def _pieces(frame: str) -> Iterator[str]:
    """Split a frame into literal text and `{x}` slots."""
    rest = frame
    while "{" in rest:
        literal, _, rest = rest.partition("{")
        if literal:
            yield literal
        yield "{" + rest[:2]
        rest = rest[2:]
    if rest:
        yield rest


@dataclass(frozen=True, slots=True)
class Turn:
    """What one request sends, and what the conversation keeps afterwards is up to the application."""

    messages: list[Json]
    tools: list[Json] | None = None


Application = Callable[[], Iterator[Callable[[float], Turn]]]


def _chat(
    writer: Writer, system: Callable[[float], str], *, turns: tuple[int, int], ask: int, answer: int
) -> Iterator[Callable[[float], Turn]]:
    """Run a conversation that grows: each request carries the system message, all earlier turns, and a new question."""
    history: list[Json] = []
    for _ in range(writer.rng.randint(*turns)):
        history.append({"role": "user", "content": writer.around(ask)})
        sent = list(history)
        yield lambda now, sent=sent: Turn([{"role": "system", "content": system(now)}, *sent])  # type: ignore[misc]
        history.append({"role": "assistant", "content": writer.around(answer)})


def _clock(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S")


def applications(writer: Writer) -> dict[str, Application]:
    """Build the eight applications; each call of one starts a new session."""
    rng = writer.rng
    rules = {name: writer.text(size) for name, size in SYSTEM_TOKENS.items()}
    tools = [writer.tool(f"{verb}_{noun}") for verb, noun in TOOL_NAMES]
    passages = [writer.around(260) for _ in range(400)]
    examples = [(writer.around(60), writer.around(90)) for _ in range(60)]

    def fixed(name: str) -> Callable[[float], str]:
        return lambda _now: f"You are the {name} assistant of Northlight Logistics.\n\n{rules[name]}"

    def helpdesk() -> Iterator[Callable[[float], Turn]]:
        return _chat(writer, fixed("helpdesk"), turns=(2, 7), ask=70, answer=190)

    def dispatch() -> Iterator[Callable[[float], Turn]]:
        def system(now: float) -> str:
            return (
                f"Current time: {_clock(now)}\n\nYou plan the lorries of Northlight Logistics.\n\n{rules['dispatch']}"
            )

        return _chat(writer, system, turns=(1, 4), ask=70, answer=160)

    def concierge() -> Iterator[Callable[[float], Turn]]:
        who = f"{rng.choice(PEOPLE)} (customer {rng.randint(10_000, 99_999)})"

        def system(_now: float) -> str:
            return f"You are speaking with {who}. You are the concierge of Northlight Stays.\n\n{rules['concierge']}"

        return _chat(writer, system, turns=(2, 6), ask=60, answer=170)

    def agent(name: str, order: Callable[[], list[Json]]) -> Iterator[Callable[[float], Turn]]:
        head = {"role": "system", "content": fixed(name)(0.0)}
        history: list[Json] = [{"role": "user", "content": writer.around(60)}]
        for step in range(rng.randint(2, 6)):
            sent, offered = list(history), order()
            yield lambda _now, sent=sent, offered=offered: Turn([head, *sent], offered)  # type: ignore[misc]
            call_id = f"call_{rng.getrandbits(48):012x}"
            arguments = orjson.dumps(
                {"reference": f"{rng.choice(CODES)}-{rng.randint(100, 999)}", "step": step}
            ).decode()
            function = {"name": rng.choice(tools)["function"]["name"], "arguments": arguments}
            call = {"id": call_id, "type": "function", "function": function}
            history.append({"role": "assistant", "content": None, "tool_calls": [call]})
            result = {"status": "ok", "rows": [writer.rng.choice(writer.pool) for _ in range(rng.randint(3, 9))]}
            history.append({"role": "tool", "tool_call_id": call_id, "content": orjson.dumps(result).decode()})

    def operations() -> Iterator[Callable[[float], Turn]]:
        return agent("operations", lambda: tools)

    def storefront() -> Iterator[Callable[[float], Turn]]:
        return agent("storefront", lambda: rng.sample(tools, len(tools)))

    def handbook() -> Iterator[Callable[[float], Turn]]:
        found = "\n\n".join(f"[{i + 1}] {passages[k]}" for i, k in enumerate(rng.sample(range(len(passages)), 3)))
        question = f"Passages:\n\n{found}\n\nQuestion: {writer.around(30)}"
        head = {"role": "system", "content": fixed("handbook")(0.0)}
        yield lambda _now: Turn([head, {"role": "user", "content": question}])

    def shots(name: str, drawn: list[tuple[str, str]]) -> Iterator[Callable[[float], Turn]]:
        messages: list[Json] = [{"role": "system", "content": fixed(name)(0.0)}]
        for question, answer in drawn:
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        messages.append({"role": "user", "content": writer.around(120)})
        yield lambda _now: Turn(messages)

    def triage() -> Iterator[Callable[[float], Turn]]:
        return shots("triage", examples[:8])

    def drafting() -> Iterator[Callable[[float], Turn]]:
        return shots("drafting", rng.sample(examples, 8))

    return {
        "helpdesk": helpdesk,
        "dispatch": dispatch,
        "concierge": concierge,
        "operations": operations,
        "storefront": storefront,
        "handbook": handbook,
        "triage": triage,
        "drafting": drafting,
    }


SYSTEM_TOKENS = {
    "helpdesk": 1500,
    "dispatch": 800,
    "concierge": 700,
    "operations": 800,
    "storefront": 300,
    "handbook": 700,
    "triage": 700,
    "drafting": 500,
}
TOOL_NAMES = tuple(zip(
    "find book move cancel price track refund escalate".split(),
    "parcel slot lorry booking tariff shipment payment incident".split(),
    strict=True,
))  # fmt: skip


def requests(seed: int = 1) -> Iterator[Json]:
    """Give the requests of an endless log in time order; take as many as are wanted."""
    rng = random.Random(seed)
    apps = applications(Writer(rng))
    names = list(apps)
    waiting: list[tuple[float, int, str, Iterator[Callable[[float], Turn]]]] = []
    next_start = START
    sessions = itertools.count(1)
    for number in itertools.count(1):
        turn = None
        while turn is None:
            while not waiting or next_start <= waiting[0][0]:
                name = rng.choice(names)
                heapq.heappush(waiting, (next_start, next(sessions), name, apps[name]()))
                next_start += rng.expovariate(1 / MEAN_GAP_BETWEEN_SESSIONS)
            now, session, name, steps = heapq.heappop(waiting)
            turn = next(steps, None)
        heapq.heappush(waiting, (now + 2 + rng.expovariate(1 / MEAN_GAP_BETWEEN_TURNS), session, name, steps))
        sent = turn(now)
        body: Json = {
            "timestamp": round(now, 3),
            "request_id": f"req-{number}",
            "session_id": f"{name}-{session}",
            "model": "northlight-chat",
            "messages": sent.messages,
        }
        if sent.tools is not None:
            body["tools"] = sent.tools
        yield body


def write(out: IO[bytes], *, count: int, seed: int = 1) -> int:
    """Write `count` requests as JSON lines; gives the bytes written."""
    total = 0
    for body in itertools.islice(requests(seed), count):
        total += out.write(orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE))
    return total


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and write the log."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, help="a file; standard output when not given")
    args = parser.parse_args(argv)
    if args.output is None:
        write(sys.stdout.buffer, count=args.requests, seed=args.seed)
        return 0
    with args.output.open("wb") as out:
        size = write(out, count=args.requests, seed=args.seed)
    print(f"{args.output}: {args.requests:,} requests, {size / 1e6:.1f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
