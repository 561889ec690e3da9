"""Summaries -> prompts: which values reach a model together, in which order, under which roles.

A request that shows most comes first; a sink whose text a larger one has shown already gives no prompt of its own. Text
that only its name marks as a prompt comes last, filled by the calls that format it, wherever they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prefixlint.fills import Fill, called, last_name
from prefixlint.origins import Judge
from prefixlint.project import Project
from prefixlint.prompts import PICTURE, Choice, Hole, Include, Message, Node, Prompt, Repeat, Span
from prefixlint.reach import is_lone, is_shown
from prefixlint.render import Renderer
from prefixlint.renders import Renders
from prefixlint.resolve import MAKING, Frame, Resolver, is_setting_up
from prefixlint.sources import Diagnostic, Sink, Summary
from prefixlint.sources._pyscope import words
from prefixlint.sources._pysinks import MESSAGE_CLASSES, holds_blocks, is_message_call, looks_like_messages
from prefixlint.sources._pytexts import SYSTEM_KEYS
from prefixlint.speech import is_addressed, is_code
from prefixlint.values import (
    Call,
    Either,
    Join,
    Lit,
    Loop,
    Map,
    Name,
    Seq,
    Star,
    Template,
    Value,
    Var,
    bare,
    dotted,
    text_of,
)

HISTORY = "history"
"""The role of a gap: messages that the source does not show."""
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool", "placeholder": HISTORY}
REQUEST_SYSTEM = ("system", "system_prompt", "instructions", "system_instruction", "system_message")
_ORDER = {"call": 0, "declared": 0, "messages": 1, "text": 2, "hint": 2, "message": 3, "tools": 4, "named": 5}
_LAST = 6
"""A file by itself: the code that reads it shows what stands around it."""


@dataclass(slots=True)
class Linked:
    """A project with what its files' sinks show; `prompts` by the file that holds the sink.

    `uses` are where further prompts show a place that another one has shown already: a helper writes it for several.
    """

    project: Project
    resolver: Resolver
    renderer: Renderer
    prompts: dict[str, list[Prompt]] = field(default_factory=lambda: defaultdict(list))
    problems: list[Diagnostic] = field(default_factory=list)
    uses: dict[Span, list[Span]] = field(default_factory=lambda: defaultdict(list))

    def frame(self, summary: Summary, sink: Sink) -> Frame:
        """Give the frame of a sink."""
        frozen = not sink.func and not sink.loop and summary.kind == "python"
        return Frame(summary, sink.func, None, frozen, loop=sink.loop)


def link(project: Project, paths: Iterable[str]) -> Linked:
    """Link the files at `paths`; other files of the project are read as far as these lead to them."""
    resolver = Resolver(project)
    judge = Judge(resolver)
    linked = Linked(project, resolver, Renderer(resolver, judge))
    summaries = [summary for path in sorted(paths) if (summary := project.summary(path)) is not None]
    renders = Renders(linked.renderer)
    covered: set[tuple[str, int]] = set()
    work = [
        (_LAST if sink.value is summary.text else _ORDER[sink.kind], -_size(sink.value), summary, sink)
        for summary in summaries
        for sink in summary.sinks
        if sink.kind in _ORDER
    ]
    work.sort(key=lambda item: (item[0], item[1], item[2].path, item[3].start))
    for _, _, summary, sink in work:
        linked.renderer.start()
        try:
            prompts = list(_prompts(linked, summary, sink, renders))
        except RecursionError:
            linked.problems.append(Diagnostic(summary.path, 0, "too-deep", "nested too deeply to be followed"))
            continue
        for each in prompts:
            prompt = replace(each, shown=each.shown and is_shown(sink, each), once=_is_once(summary, sink))
            places = set(_places(prompt))
            if places and not places <= covered:
                covered |= places
                linked.prompts[summary.path].append(prompt)
            else:
                _note_uses(linked, prompt, summary.path)
    return linked


def _note_uses(linked: Linked, prompt: Prompt, path: str) -> None:
    """Keep where a prompt that gives none of its own shows places of others: where its file hands them over."""
    for hole in _holes(prompt):
        used = next((span for span in reversed(hole.bound) if span.path == path), None)
        if used is not None and used not in linked.uses[hole.span]:
            linked.uses[hole.span].append(used)


def _is_once(summary: Summary, sink: Sink) -> bool:
    """Tell whether a sink stands where an object is made, or in a method that only puts it into an attribute."""
    if sink.func.rpartition(".")[2] in MAKING:
        return True
    held = bare(sink.value)
    own = (other for other in summary.sinks if other.kind == "named" and other.func == sink.func)
    kept = any(other.name.startswith("self.") and bare(other.value) is held for other in own)
    return kept and sink.kind in ("text", "named") and is_setting_up(summary, sink.func)


_DEPTH = 20
"""Sums inside sums that are looked into for their size."""
_INCLUDING = 1000
"""Weight of an include: the file that includes shows more than the one included."""


def _size(value: Value, depth: int = 0) -> int:
    value = bare(value)
    if depth > _DEPTH:
        return 1
    if isinstance(value, Seq):
        return len(value.items)
    if isinstance(value, Call) and (dotted(value.func) or "").startswith("jinja."):
        return _INCLUDING
    return sum(_size(part, depth + 1) for part in value.parts) + 1 if isinstance(value, Join) else 1


def _holes(prompt: Prompt) -> Iterator[Hole]:
    stack: list[Node] = [node for message in prompt.messages for node in message.nodes]
    while stack:
        node = stack.pop()
        if isinstance(node, Hole):
            yield node
        elif isinstance(node, Repeat):
            stack.extend(node.nodes)
        elif isinstance(node, Choice):
            stack.extend(each for branch in node.branches for each in branch)


def _places(prompt: Prompt) -> Iterator[tuple[str, int]]:
    """Give what identifies a prompt's changing places, by file and byte."""
    stack: list[Node] = [*prompt.tools, *(node for message in prompt.messages for node in message.nodes)]
    while stack:
        node = stack.pop()
        if isinstance(node, Repeat):
            stack.extend(node.nodes)
            if node.source is not None:
                yield node.source.span.path, node.source.span.start
        elif isinstance(node, Choice):
            for branch in node.branches:
                stack.extend(branch)
        elif isinstance(node, (Hole, Include)):
            yield node.span.path, node.span.start


def _prompts(linked: Linked, summary: Summary, sink: Sink, renders: Renders) -> Iterator[Prompt]:
    frame = linked.frame(summary, sink)
    span = Span(summary.path, sink.start, sink.end)
    if sink.kind == "call":
        prompt = _request(linked, sink, frame, span)
        if prompt is not None:
            yield prompt
    elif sink.kind == "messages":
        for inner in renders.bound(sink, frame):
            reader = _Messages(linked, renders.of_messages(sink, frame))
            read = reader.read_system if sink.role == "system" else reader.read  # blocks are one message
            messages = read(sink.value, inner)
            if messages:
                lone = len(messages) == 1 and is_lone(sink, messages)
                yield Prompt(tuple(messages), span, name=sink.name, lone=lone)
    elif sink.kind == "message":
        messages = _Messages(linked).item(sink.value, frame)
        continues = messages[-1].role != "user" if messages else True
        yield Prompt(tuple(messages), span, continues=continues, name=sink.name, lone=is_lone(sink, messages))
    elif sink.kind == "declared":
        messages = _declared(linked, sink, frame)
        if messages:
            yield Prompt(tuple(messages), span, name=last_name(sink.value) if isinstance(sink.value, Call) else "")
    elif sink.kind == "tools":
        yield Prompt((), span, tools=tuple(_tools(linked, sink.value, frame)), name=sink.name)
    elif sink.kind in ("text", "hint", "named"):
        continues = sink.kind != "named" or sink.role == "system"
        held = linked.resolver.resolve(sink.value, frame)[0]
        if sink.kind == "text" and sink.role == "system" and holds_blocks(held):
            yield Prompt(tuple(_Messages(linked).read_system(sink.value, frame)), span, continues=True, name=sink.name)
            return
        shown = not _is_record(held)
        for nodes in renders.fillings(sink, frame):
            if sink.kind == "text" or (is_addressed(nodes) if sink.kind == "hint" else not is_code(nodes)):
                whole = (Message(sink.role, tuple(nodes), span),)
                yield Prompt(whole, span, continues=continues, name=sink.name, shown=shown)


def _is_record(value: Value) -> bool:
    """Tell whether a value is a mapping of facts: `{"system": {"uptime": …}}` is a report, no system text."""
    return isinstance(value, Map) and not {text_of(key) for key, _ in value.entries} & _OF_CONTENT


_OF_CONTENT = frozenset(["text", "parts", "content", "role"])
"""Keys of a mapping that holds a text."""


def _request(linked: Linked, sink: Sink, frame: Frame, span: Span) -> Prompt | None:
    """Give the prompt of a request: tools, system text and messages that stand in one call."""
    if not isinstance(sink.value, Call):
        return None
    given = dict(sink.value.kwargs)
    value = given.get("messages", given.get("input"))
    if value is None:
        return None
    reader = _Messages(linked)
    messages = reader.read(value, frame)
    for key in REQUEST_SYSTEM:
        if key in given:
            messages = [*reader.read_system(given[key], frame), *messages]
    tools = tuple(_tools(linked, given["tools"], frame)) if "tools" in given else ()
    return Prompt(tuple(messages), span, tools, name=sink.name) if messages or tools else None


def _declared(linked: Linked, sink: Sink, frame: Frame) -> list[Message]:
    """Give the messages of a call that the configuration names: its system text first, then the rest as it stands."""
    call = sink.value
    if not isinstance(call, Call):
        return []
    found = linked.resolver.callee(call, frame)
    names = found[0].params if found is not None else ()
    given = [(names[at] if at < len(names) else "", value) for at, value in enumerate(call.args)]
    if sink.name.isdigit():
        chosen = given[int(sink.name) :][:1]
    else:
        chosen = [pair for pair in (*given, *call.kwargs) if sink.name in ("", pair[0])]
    reader = _Messages(linked)
    system: list[Message] = []
    rest: list[Message] = []
    for name, value in chosen:
        held, inner = linked.resolver.resolve(value, frame)
        if looks_like_messages(held):
            rest.extend(reader.read(held, inner))
        elif name in SYSTEM_KEYS:
            system.extend(reader.read_system(value, frame))
        elif sink.name or linked.renderer.textual(held, inner):
            role = "user" if system else "text"
            rest.append(Message(role, tuple(reader.content(value, frame)), frame.span(value)))
    return [*system, *rest]


def _tools(linked: Linked, value: Value, frame: Frame, depth: int = 0, *, inside: bool = False) -> list[Node]:
    """Give the nodes of tool definitions: the strings in them, and what decides their order."""
    held, inner = linked.resolver.resolve(value, frame)
    if depth > 10 or linked.renderer.spent():
        return []
    if inside and not isinstance(held, (Map, Seq)) and linked.renderer.textual(held, inner):
        return linked.renderer.render(held, inner)
    if isinstance(held, Map):
        nodes: list[Node] = []
        for key, item in held.entries:
            if text_of(key) not in ("required", "strict"):
                nodes.extend(_tools(linked, item, inner, depth + 1, inside=True))
        return nodes
    if isinstance(held, (Seq, Loop, Join)) or (
        isinstance(held, Call) and dotted(held.func) in ("sorted", "list", "set", "filter")
    ):
        if isinstance(held, Seq) and held.kind != "set":
            return [node for item in held.items for node in _tools(linked, item, inner, depth + 1, inside=inside)]
        return _tool_list(linked, held, inner, depth)
    if isinstance(held, Star):
        return _tools(linked, held.value, inner, depth + 1)
    if isinstance(held, Either):
        return [
            Choice(
                tuple(tuple(_tools(linked, option, inner, depth + 1, inside=inside)) for option in held.options),
                inner.span(held),
            )
        ]
    return []


def _tool_list(linked: Linked, held: Value, frame: Frame, depth: int) -> list[Node]:
    """Give what decides the order of a computed tool list, and the texts in its definitions."""
    if isinstance(held, Join):
        return [node for part in held.parts for node in _tools(linked, part, frame, depth + 1)]
    if isinstance(held, Loop):
        inner = _tools(linked, held.body, frame, depth + 1)
        verdict = linked.renderer.verdict(held if held.kind == "set" else held.source, frame)
        kept = tuple(origin for origin in verdict.origins if origin.kind in ("order", "selection"))
        name = dotted(held.source)
        source = Hole((name.lstrip("./"),) if name else (), kept, frame.span(held.source))
        return [Repeat(tuple(inner), frame.span(held), source)]
    verdict = linked.renderer.verdict(held, frame)
    kept = tuple(origin for origin in verdict.origins if origin.kind in ("order", "selection"))
    return [Hole((), kept, frame.span(held))] if kept else []


def message(linked: Linked, value: Value, frame: Frame) -> list[Message]:
    """Give the messages that an element of a list of messages is; a gap of role `history` if it shows none."""
    linked.renderer.start()
    return _Messages(linked).item(value, frame)


def system(linked: Linked, value: Value, frame: Frame) -> list[Message]:
    """Give the messages of what a request gets as its system text."""
    linked.renderer.start()
    return _Messages(linked).read_system(value, frame)


def _grows(messages: Value, frame: Frame) -> bool:
    """Tell whether a loop of a function puts messages behind those of a list, or any method behind an object's."""
    name = dotted(messages)
    owned = isinstance(messages, Name) and messages.dotted.startswith(".") and messages.dotted.count(".") > 1
    if name is None or not (owned or (isinstance(messages, Var) and isinstance(bare(messages), Seq))):
        return False
    added = (sink for sink in frame.summary.sinks if sink.kind == "call" and sink.name in ("append", "extend"))
    here = (sink.value for sink in added if owned or (sink.loop and sink.func == frame.func))
    return any(isinstance(call, Call) and (dotted(call.func) or "").rpartition(".")[0] == name for call in here)


class _Messages:
    """Reads lists of messages."""

    def __init__(self, linked: Linked, filled: Mapping[str, tuple[Value, Frame]] | None = None) -> None:
        self.linked = linked
        self.filled = dict(filled or {})
        self.depth = 0

    def read(self, value: Value, frame: Frame) -> list[Message]:
        """Give the messages of a list; what cannot be seen is a gap of role `history`."""
        if self.depth > 12:
            return []
        self.depth += 1
        try:
            return self._read(value, frame)
        finally:
            self.depth -= 1

    def _grown(self, value: Value, frame: Frame) -> list[Message]:
        """Give the messages of a list in another, and behind them a gap if more are put behind them later."""
        messages = self.read(value, frame)
        grows = not any(message.role == HISTORY for message in messages) and _grows(value, frame)
        return [*messages, Message(HISTORY, (), frame.span(value))] if grows else messages

    def _read(self, value: Value, frame: Frame) -> list[Message]:
        held, inner = self.linked.resolver.resolve(value, frame)
        if isinstance(held, Seq):
            return [message for item in held.items for message in self.item(item, inner)]
        if isinstance(held, Join):
            return [message for part in held.parts for message in self._grown(part, inner)]
        if isinstance(held, Star):
            return self._grown(held.value, inner)
        if isinstance(held, Loop) and isinstance(held.body, Seq):
            return [message for item in held.body.items for message in self.item(item, inner)]
        if isinstance(held, Either):
            shown = [self.read(option, inner) for option in held.options]
            return max(shown, key=lambda messages: sum(message.role != HISTORY for message in messages))
        if isinstance(held, Call):
            last = (dotted(held.func) or "").rsplit(".", 1)[-1]
            if last in ("from_messages", "ChatPromptTemplate") and (held.args or held.kwargs):
                return self.read(held.args[0] if held.args else held.kwargs[0][1], inner)
            if last in ("list", "tuple", "copy", "deepcopy") and held.args:
                return self.read(held.args[0], inner)
        if isinstance(held, (Lit, Template, Join)):
            return [Message("user", tuple(self.linked.renderer.render(held, inner)), inner.span(held))]
        role = "system" if "system" in words(called(value)) else HISTORY
        return [Message(role, (), frame.span(value))]

    def read_system(self, value: Value, frame: Frame) -> list[Message]:
        """Give the system text of a request: a string, or a list of blocks."""
        held, inner = self.linked.resolver.resolve(value, frame)
        if looks_like_messages(held):
            return self.read(held, inner)
        return [Message("system", tuple(self.content(value, frame)), frame.span(value))]

    def item(self, value: Value, frame: Frame) -> list[Message]:
        """Give the message that a value is, a gap if it is none."""
        held, inner = self.linked.resolver.resolve(value, frame)
        if isinstance(held, Star):
            return self._grown(held.value, inner)
        if isinstance(held, Map):
            return [self._mapping(held, inner)]
        if isinstance(held, Seq) and held.kind == "tuple" and len(held.items) == 2:
            role = text_of(held.items[0]) or "text"
            return [self._pair(_ROLES.get(role, role), held.items[1], inner)]
        if isinstance(held, Call):
            path = (dotted(held.func) or "").split(".")[-2:]
            role = next((MESSAGE_CLASSES[part] for part in path if part in MESSAGE_CLASSES), "")
            if role:
                fills = (Fill("brace", (), self.filled, inner.span(held)),) if self.filled else ()
                return [Message(role, tuple(self.linked.renderer.render(held, inner, fills)), inner.span(held))]
            if is_message_call(held):
                given = dict(held.kwargs) or {"role": held.args[0], "content": held.args[1]}
                return [self._of_parts(given, held, inner)]
        if isinstance(held, (Loop, Seq)):
            return self.read(held, inner)
        return [Message(HISTORY, (), frame.span(value))]

    def _mapping(self, held: Map, frame: Frame) -> Message:
        return self._of_parts({text_of(key) or "": item for key, item in held.entries}, held, frame)

    def _of_parts(self, entries: Mapping[str, Value], held: Value, frame: Frame) -> Message:
        role = entries.get("role")
        said = _role(self.linked.resolver.resolve(role, frame)[0]) if role is not None else None
        said = _ROLES.get(said or "text", said or "text")
        content = next((entries[key] for key in ("content", "parts", "text", "message") if key in entries), None)
        nodes = self.content(content, frame) if content is not None else []
        return Message(said, tuple(nodes), frame.span(held))

    def _pair(self, role: str, value: Value, frame: Frame) -> Message:
        held, inner = self.linked.resolver.resolve(value, frame)
        if role == HISTORY:
            return Message(HISTORY, (), frame.span(value))
        fill = Fill("brace", (), self.filled, inner.span(held))
        fills = (fill,) if isinstance(held, (Lit, Join)) else ()
        return Message(role, tuple(self.linked.renderer.render(held, inner, fills)), frame.span(value))

    def content(self, value: Value, frame: Frame) -> list[Node]:
        """Give the nodes of a message's content: text, or a list of blocks with text."""
        held, inner = self.linked.resolver.resolve(value, frame)
        if isinstance(held, Seq):
            return [node for item in held.items for node in self._block(item, inner)]
        return self.linked.renderer.part(value, frame)

    def _block(self, value: Value, frame: Frame) -> list[Node]:
        held, inner = self.linked.resolver.resolve(value, frame)
        if isinstance(held, Map):
            entries = {text_of(key): item for key, item in held.entries}
            text = entries.get("text", entries.get("content"))
            if text is None and not _PICTURES.isdisjoint(entries):
                return [Include(PICTURE, inner.span(held))]
            return self.linked.renderer.part(text, inner) if text is not None else []
        return self.linked.renderer.part(value, frame)


_PICTURES = frozenset(
    ["image_url", "image", "source", "inline_data", "inlineData", "input_audio", "file_data", "video"]
)
"""Keys of blocks that hold what is no text, another thing with each request."""


def _role(value: Value) -> str | None:
    """Give the role that a value names: a string, or a member of an enumeration (`Role.SYSTEM`)."""
    said = text_of(value) or (dotted(value) or "").rsplit(".", 1)[-1].lower()
    return said if said in (*_ROLES, *_ROLES.values(), "system", "developer", "tool") else None
