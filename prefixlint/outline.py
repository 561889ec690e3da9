"""What prompts look like as a whole, as values: the prefix tree made small, and a family's template with its holes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A stretch of the prefix tree: tokens that the same requests run through, from one parting to the next.

    `parent` is the index of the node above, None for the root, which stands for all prompts. `start` is the place of
    its first token in the prompts (0-based), `tokens` its length. `requests` run through it; `prompt_tokens` are what
    they ask for in it and below, `own_tokens` in it alone, of which `reused_tokens` an unlimited cache finds again.
    Where a node stands for several small branches, `branches` counts them; `start` and `tokens` are None then. `text`
    is its beginning, masked; None where the log holds no text.
    """

    parent: int | None
    start: int | None
    tokens: int | None
    requests: int
    prompt_tokens: int
    own_tokens: int
    reused_tokens: int
    branches: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The tree of all prompts in tokens as they were counted; parents stand before their children.

    `stretches` is how many stretches the whole tree has; those that are small share a node.
    """

    nodes: Sequence[TreeNode]
    stretches: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a family's template: text, or `left_out` characters of it.

    `span` is the index of the family's place that the text is a value of; None for text that stays the same there.
    """

    text: str = ""
    span: int | None = None
    left_out: int | None = None
