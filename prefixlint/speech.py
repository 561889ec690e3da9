"""Whether a text is written to a model, or is code or a notice to people."""

from __future__ import annotations

import re
from collections.abc import Iterable

from prefixlint.prompts import Choice, Node, Repeat, Text

LONG = 120
"""Characters of imperative static text from which a text counts as a prompt whatever its name."""
IMPERATIVE = re.compile(
    r"\b(?:You are|You're|Your (?:task|job|goal|role)|You (?:must|will|should)|Act as|"
    r"Follow these (?:rules|steps|instructions)|"
    r"Respond (?:with|in|only)|Answer the (?:question|following))\b"
)
_CODE = re.compile(
    r"\s*(?:from [\w.]+ import |import [\w.{}]+(?: as \w+)?\s*$|(?:async )?def \w+\(|class \w+[(:]|"
    r"#!/|<!doctype|<html|<\?xml|<script|\(?(?:async )?\(\w*\) =>|\(?function ?\w*\(|(?:const|let|var) \w+ = |"
    r"select\s[^.?!]*?\sfrom\s|insert into |delete from |update \w+ set |create (?:table|index|view) |with \w+ as \()",
    re.IGNORECASE | re.MULTILINE,
)


def static_text(nodes: Iterable[Node]) -> str:
    """Give the fixed text of nodes in order, optional parts included, what is repeated once."""
    texts: list[str] = []
    for node in nodes:
        if isinstance(node, Text):
            texts.append(node.text)
        elif isinstance(node, Repeat):
            texts.append(static_text(node.nodes))
        elif isinstance(node, Choice):
            texts.extend(map(static_text, node.branches))
    return "".join(texts)


def is_code(nodes: Iterable[Node]) -> bool:
    """Tell whether a text begins as a program, a query or a page does."""
    return _CODE.match(static_text(nodes)) is not None


def is_addressed(nodes: Iterable[Node]) -> bool:
    """Tell whether a text is long enough for instructions, or speaks to a model."""
    text = static_text(nodes)
    return len(text) >= LONG or IMPERATIVE.search(text) is not None
