"""Where in its prompt a changing value stands, and what that costs: the static tokens behind it, and what hides it.

Tokens are estimated at four characters each; nothing here needs a tokenizer. Text of unknown length (a constant defined
elsewhere, a file read at run time) counts as `UNKNOWN_TOKENS`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from prefixlint import volatility
from prefixlint.prompts import Hole, Include, Origin, Period, Prompt, Scope, Segment, Span, Text, Volatility, flatten
from prefixlint.speech import weight

CHARS_PER_TOKEN = 4.0
"""The usual rule of thumb for English text in current vocabularies; `speech.weight` measures other scripts by it."""
LEAD = 40
"""Characters of fixed text before a place that may say what stands there."""
UNKNOWN_TOKENS = 64
"""Tokens that a text of unknown length counts as: a short paragraph."""
HEAD = ("tools", "system", "developer")
_UNKNOWN = Volatility(Scope.REQUEST, Period.CALL)
CONTENT = frozenset({"input", "retrieval", "memory", "tools"})


@dataclass(frozen=True, slots=True)
class Place:
    """One reason at one place of a prompt.

    `behind` are the static tokens behind the place: in the newest message only those of that message. `shared` are
    those of them in front of the next value that each request brings anew, behind which no request could read anything
    from a cache anyway; `cut` says that there is one in the same message. `beyond` and `bounded` are the same past
    values that are faults as well, which go when this one goes. `before` are the static tokens in front of the place.
    `open_ended` says that a conversation may follow, `history` that the source shows it to. `newest` says that it
    stands in the last message, `late` in system text that follows a conversation. `lead` is the fixed text right before
    it. `masker` is an earlier place that changes at least as widely and as often.
    """

    prompt: Prompt
    hole: Hole
    origin: Origin
    role: str
    behind: int
    before: int
    open_ended: bool
    newest: bool
    repeated: bool
    history: bool
    late: bool = False
    lead: str = ""
    shared: int = 0
    cut: bool = False
    beyond: int = 0
    bounded: bool = False
    masker: Place | None = None

    @property
    def lone(self) -> bool:
        """Whether it stands in a message that the source shows without the ones before it."""
        return self.prompt.lone

    @property
    def span(self) -> Span:
        """Where to report: the argument that brings a followed value, else the place in the text."""
        argument = self.hole.argument
        return argument if argument is not None and self.origin.evidence == "flow" else self.hole.span

    @property
    def group(self) -> Span:
        """The place in the text, whoever fills it."""
        return self.hole.span


def places(prompt: Prompt) -> list[Place]:
    """Give the places of a prompt in the order in which a model reads them."""
    table = _Table(prompt, flatten(prompt))
    out: list[Place] = []
    for index, segment in enumerate(table.segments):
        if isinstance(segment.node, Hole):
            for origin in _reasons(segment.node):
                out.append(_place(table, index, segment.node, origin))  # noqa: PERF401 (two loops deep)
    return _masked(out, table.segments)


class _Table:
    """The segments of a prompt with the static tokens up to each, for each choice of branches that a place is in."""

    def __init__(self, prompt: Prompt, segments: list[Segment]) -> None:
        self.prompt = prompt
        self.segments = segments = [piece for segment in segments for piece in _opened(segment)]
        self._sizes = [size(segment) for segment in segments]
        self._widest = _widest(segments, self._sizes)
        self._sums: dict[tuple[tuple[int, int], ...], list[float]] = {}
        self._ends = {segment.message: index + 1 for index, segment in enumerate(segments)}
        self._moving = [index for index, segment in enumerate(segments) if _moves(prompt, segment)]

    def sums(self, index: int) -> list[float]:
        """Give the static tokens in front of each segment that stand beside the segment at `index`."""
        own = self.segments[index].branch
        if own not in self._sums:
            taken = {**self._widest, **dict(own)}
            self._sums[own] = [0.0, *accumulate(map(partial(self._counted, taken), self.segments, self._sizes))]
        return self._sums[own]

    @staticmethod
    def _counted(taken: Mapping[int, int], segment: Segment, size: float) -> float:
        return size if size and all(taken[choice] == branch for choice, branch in segment.branch) else 0.0

    def end(self, message: int) -> int:
        """Give the number of the segment behind a message."""
        return self._ends[message]

    def next_moving(self, index: int, *, past_faults: bool = False) -> int:
        """Give the next segment that each request fills anew, in each branch of the one at `index`; else the end.

        What was found or remembered for a request counts in an optional part as well: it is hardly ever empty.
        """
        own, hole = dict(self.segments[index].branch), self.segments[index].node
        for at in self._moving[bisect_right(self._moving, index) :]:
            other = self.segments[at]
            if past_faults and _is_fault(other.node):
                continue
            found = _is_found(other.node)
            beside = (own.get(choice, branch if found else None) == branch for choice, branch in other.branch)
            if other.node.span != hole.span and all(beside):
                return at
        return len(self.segments)


def _reasons(hole: Hole) -> list[Origin]:
    """Give one origin of each kind, the fastest; content counts only where nothing worse is known.

    A place of which nothing is known but a name may be filled per request: kind `unknown`.
    """
    if not hole.origins and not hole.constant and hole.names:
        return [Origin("unknown", _UNKNOWN, hole.names[0], None, "name")]
    best: dict[str, Origin] = {}
    for origin in hole.origins:
        old = best.get(origin.kind)
        if old is None or (origin.evidence == "flow", origin.volatility.period) > (
            old.evidence == "flow",
            old.volatility.period,
        ):
            best[origin.kind] = origin
    if "clock" in best and best.get("date") is not None:
        del best["date"]
    core = [origin for kind, origin in best.items() if kind not in CONTENT]
    return core or list(best.values())[:1]


def size(segment: Segment) -> float:
    """Give the static tokens of a segment, as far as requests share them."""
    node = segment.node
    if segment.repeated:
        return 0.0
    if isinstance(node, Text):
        return weight(node.text) / CHARS_PER_TOKEN
    if isinstance(node, Hole) and node.constant and not node.origins:
        return UNKNOWN_TOKENS if any(map(_is_text_name, node.names)) else 0.0
    return 0.0


def _is_text_name(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    source = volatility.of_name(name)
    return (source is not None and source.kind == "static") or (len(last) > 2 and last.isupper()) or "." in name


def _widest(segments: list[Segment], sizes: list[float]) -> dict[int, int]:
    """Give, for each choice, the branch with the most static text: the others cannot stand beside it."""
    totals: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for segment, size in zip(segments, sizes, strict=True):
        for choice, branch in segment.branch:
            totals[choice][branch] += size
    return {choice: max(branches, key=lambda b: (branches[b], -b)) for choice, branches in totals.items()}


def _place(table: _Table, index: int, hole: Hole, origin: Origin) -> Place:
    segment, prompt = table.segments[index], table.prompt
    newest = _is_newest(prompt, segment)
    sums = table.sums(index)
    end = table.end(segment.message) if newest else len(table.segments)
    moving = min(table.next_moving(index), end)
    own = min(table.next_moving(index, past_faults=True), end)
    cut, bounded = (at < end and table.segments[at].message == segment.message for at in (moving, own))
    history = _history_after(prompt, segment)
    return Place(
        prompt=prompt,
        hole=hole,
        origin=origin,
        role=segment.role,
        behind=round(sums[end] - sums[index]),
        before=round(sums[index]),
        open_ended=history or segment.role in HEAD,
        newest=newest,
        repeated=segment.repeated,
        history=history,
        late=segment.role in HEAD and any(m.role == "history" for m in prompt.messages[: max(segment.message, 0)]),
        lead=_lead(table.segments, index),
        shared=round(sums[moving] - sums[index]),
        cut=cut,
        beyond=round(sums[own] - sums[index]),
        bounded=bounded,
    )


def _lead(segments: list[Segment], index: int) -> str:
    """Give the end of the line that stands right before a segment, as far as it is fixed."""
    node = segments[index - 1].node if index and segments[index - 1].message == segments[index].message else None
    return node.text.rpartition("\n")[2][-LEAD:] if isinstance(node, Text) else ""


def _is_newest(prompt: Prompt, segment: Segment) -> bool:
    return segment.role in ("user", "tool") and segment.message == len(prompt.messages) - 1


def _history_after(prompt: Prompt, segment: Segment) -> bool:
    return segment.message >= 0 and any(m.role == "history" for m in prompt.messages[segment.message + 1 :])


def _masked(found: list[Place], segments: list[Segment]) -> list[Place]:
    branches = {id(segment.node): dict(segment.branch) for segment in segments}
    out: list[Place] = []
    for place in found:
        own = branches.get(id(place.hole), {})
        masker = None
        for earlier in out:
            if place.origin.kind != "unknown" and (earlier.origin.kind == "unknown" or _stays(earlier)):
                continue
            if not (place.origin.volatility <= earlier.origin.volatility or _is_outpaced(place, earlier)):
                continue
            if earlier.hole is place.hole or earlier.hole.span == place.hole.span:
                continue
            if branches.get(id(earlier.hole), {}).items() <= own.items():
                masker = earlier
                break
        out.append(place if masker is None else replace(place, masker=masker))
    return out


def _is_outpaced(place: Place, earlier: Place) -> bool:
    """Tell whether a time of day stands in front of an age, which changes no more often."""
    ticks = earlier.origin.kind == "clock" and earlier.origin.volatility.period >= Period.MINUTE
    return ticks and not (earlier.origin.frozen or earlier.origin.weak) and place.origin.kind == "age"


_LEFT_OPEN = re.compile(r"(?<![{$])\{(\w+)\}(?!\})")


def _opened(segment: Segment) -> list[Segment]:
    """Take a text apart at what is still to be filled with what a request brings: `{memories}`, by code not shown."""
    node = segment.node
    if not isinstance(node, Text) or "{" not in node.text:
        return [segment]
    out: list[Segment] = []
    start = 0
    for found in _LEFT_OPEN.finditer(node.text):
        source = volatility.of_name(found[1])
        if source is None or source.kind not in CONTENT:
            continue
        out.append(replace(segment, node=Text(node.text[start : found.start()], node.span)))
        out.append(replace(segment, node=Include(found[0], node.span)))
        start = found.end()
    return [*out, replace(segment, node=Text(node.text[start:], node.span))] if out else [segment]


def _moves(prompt: Prompt, segment: Segment) -> bool:
    """Tell whether a segment is filled with what a request brings: its question, or what was found for it."""
    hole = segment.node
    if isinstance(hole, Include):
        return hole.target.startswith("{")
    if not isinstance(hole, Hole) or hole.constant:
        return False
    if segment.role in ("user", "text") and (segment.repeated or not hole.origins):
        return True
    kinds = {o.kind for o in hole.origins if o.volatility.period >= Period.CALL and not o.weak}
    named = all(o.evidence == "name" for o in hole.origins)
    return bool(kinds) and not (kinds == {"input"} and named and _is_lasting(prompt, segment.role, hole))


def _is_found(node: Text | Hole | Include) -> bool:
    """Tell whether a place is filled with what was found or remembered for a request."""
    return isinstance(node, Hole) and any(origin.kind in ("retrieval", "memory") for origin in node.origins)


def _is_fault(node: Text | Hole | Include) -> bool:
    """Tell whether nothing but what no request is about is known to fill a place: a counter, an id, the time."""
    found = [origin for origin in node.origins if not origin.weak] if isinstance(node, Hole) else []
    return bool(found) and all(origin.kind not in CONTENT and origin.evidence == "flow" for origin in found)


def _stays(place: Place) -> bool:
    """Tell whether what is only called request data in a system message stays for a conversation."""
    if place.origin.evidence != "name" or place.origin.kind != "input":
        return False
    return _is_lasting(place.prompt, place.role, place.hole, place.origin.label)


def _is_lasting(prompt: Prompt, role: str, hole: Hole, *labels: str) -> bool:
    """Tell whether a value in a system message is that of the settings, whatever it is called.

    A whole message, or a part of the settings, that is called `prompt` is that text; `self.description` is the agent's.
    """
    if role not in HEAD:
        return False
    whole = any(len(message.nodes) == 1 and message.nodes[0] is hole for message in prompt.messages)
    return whole or any(map(_is_of_agent, (*labels, *hole.names)))


def _is_of_agent(called: str) -> bool:
    """Tell whether a name is that of an attribute of the object at work, or of a prompt in what it is given."""
    owner, _, name = called.strip(".").rpartition(".")
    own = owner == "self" or owner[:1].isupper()  # an attribute of a class of the file goes by the class
    return own or (bool(owner) and name == "prompt") or name.endswith("_prompt")
