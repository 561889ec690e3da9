"""Whether the source shows that a model reads a text, or only its name and shape say so.

A call with messages, a message beside others, system text handed to an agent: a model reads them. A text that is only
called a prompt may be shown to people, kept, or sent elsewhere; what is found in it is worth knowing, no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prefixlint.prompts import Choice, Hole, Message, Node, Prompt, Repeat
from prefixlint.sources import Sink
from prefixlint.sources._pyscope import words
from prefixlint.sources._pysinks import PROMPT_WORDS, SENT, is_message_call
from prefixlint.speech import IMPERATIVE, static_text
from prefixlint.values import Call, Seq, bare
from prefixlint.wordset import path_words, word_set

_ASIDE = word_set(
    "example examples sample samples demo demos lesson lessons course courses tutorial tutorials cookbook cookbooks "
    "notebooks playground quickstart "
    "test tests testing qa e2e bench benchmark benchmarks eval evals evaluation evaluations ablation ablations "
    "experiment experiments scripts hack ci"
)
"""Words of folders and files whose code is run by hand, once, or is there to be read: no requests follow each other."""
_PROMPTS = frozenset(["prompt", "prompts", "sysprompt", "instructions"])
_SPEAKERS = frozenset(["system", "developer", "user", "assistant", "tool"])


def is_aside(path: str) -> bool:
    """Tell whether a file stands aside from what serves requests: an example, a notebook, a benchmark, a script."""
    folders, _, name = path.rpartition("/")
    hidden = any(folder.startswith(".") and folder.strip(".") for folder in folders.split("/"))
    said = path_words(folders) | path_words(name.partition(".")[0])
    return hidden or name.endswith(".ipynb") or not said.isdisjoint(_ASIDE)


def is_shown(sink: Sink, prompt: Prompt) -> bool:
    """Tell whether the source shows that a model reads the prompt of a sink."""
    if sink.aside:
        return False
    if sink.kind == "tools":
        return sink.role == SENT
    if sink.kind == "named":
        said = words(sink.name) & _PROMPTS
        return bool(said) or any(speaks(message.nodes) for message in prompt.messages)
    if sink.kind == "messages":
        return any(message.role in _SPEAKERS for message in prompt.messages)
    return True


def speaks(nodes: Iterable[Node]) -> bool:
    """Tell whether a text gives a model instructions, as far as it is shown; what is not at hand may."""
    given = tuple(nodes)
    text = static_text(given)
    return IMPERATIVE.search(text) is not None or not text.strip() or any(map(_is_text, _holes(given)))


def _is_text(hole: Hole) -> bool:
    """Tell whether a place holds a constant text that is not at hand."""
    return hole.constant and not hole.origins and bool(hole.names)


def _holes(nodes: Iterable[Node]) -> Iterator[Hole]:
    for node in nodes:
        if isinstance(node, Hole):
            yield node
        elif isinstance(node, Repeat):
            yield from _holes(node.nodes)
        elif isinstance(node, Choice):
            for branch in node.branches:
                yield from _holes(branch)


def is_lone(sink: Sink, messages: list[Message]) -> bool:
    """Tell whether a message that no list shows may stand anywhere in a conversation.

    One of the user does. One of the system is at the head, but some programs report results of tools, and events, as
    such: where the class is theirs, and neither the function's name nor the text says that it is a prompt.
    """
    held = bare(sink.value)
    listed = held.items[0] if isinstance(held, Seq) and held.items else None
    if listed is None and any(message.role == "user" for message in messages):
        return True
    made = bare(listed) if listed is not None else held
    said = words(sink.func.rsplit(".", 1)[-1])
    if not (isinstance(made, Call) and is_message_call(made)) or said & PROMPT_WORDS - {"system"}:
        return False
    return not any(IMPERATIVE.search(static_text(message.nodes)) for message in messages)
