"""A request body without its text: lengths, roles and chained salted hashes, in wire order.

In a log line, `request` is replaced by `fingerprint`:

| key | meaning |
|---|---|
| `salt` | names the salt; fingerprints are comparable only under one salt |
| `grain` | characters a mark stands for |
| `segments` | `[path, role, characters, digest, marks]` each, in wire order |
| `prompts` | with a tokenizer: the marks of the tokens, a string for each prompt of the request |
| `tokenizer` | with a tokenizer: its name, as a salted label where it is a path |
| `model`, `stream`, `namespace` | what else decides about caches: the model's name in clear, the rest as labels |

What it protects, and what it does not. Without the salt (random for each run and never written, unless a salt file is
asked for) a mark cannot be computed for a guessed text, so the log cannot be searched for one. Whoever has the log
sees how long each part is, which requests begin alike and for how long, and how often; frequent beginnings may be
guessed from that alone. Whoever has the salt as well can read the text back, sign by sign or token by token, by trying
all of them: guard a salt file like the prompts. A grain of 16 characters or more, without a tokenizer, leaves a holder
of the salt only to guess whole pieces.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson

from prefixlint import bodies
from prefixlint.fingerprints import TOKEN_BYTES, mark_bytes, write
from prefixlint.model import JsonObject, Output

# Keys that an API defines; all others (properties of a tool's parameters, arguments of a call) are the user's own
# words and end the path.
_STRUCTURE = frozenset(
    """
    tools functions toolConfig tool_config functionDeclarations function_declarations function toolSpec name description
    parameters input_schema inputSchema system instructions systemInstruction system_instruction messages input contents
    prompt inputs text input_ids content parts role type tool_calls arguments tool_call_id reasoning_content reasoning
    refusal tool_use_id thinking signature output call_id summary image_url source data
    """.split()  # noqa: SIM905  (a list of forty quoted words says no more)
)
# Below these the user's own words stand: one segment each, whatever is inside.
_OPAQUE = frozenset({"parameters", "input_schema", "inputSchema", "arguments", "source", "image_url"})
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function", "model"})
_PART = re.compile(r"([A-Za-z_]+)((?:\[\d+\])*)")
_UNITS_A_BLOCK = 64
_BLOCKS_KEPT = 1 << 16
# What BLAKE2b keeps to itself of each step of a chain.
_STATE = 16


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """The token ids of one prompt as its engine sees it, and of what was generated after it where that is known."""

    ids: Sequence[int]
    output: Sequence[int] = ()


# Turns a request body, what was generated for it and the time of the request (seconds since the epoch) into the tokens
# of its prompts; None where it cannot.
Tokenize = Callable[[JsonObject, Output | None, float], Sequence[TokenizedPrompt] | None]


class Fingerprinter:
    """Makes fingerprints under one salt.

    Memory is bounded: chains over text that was seen before are looked up in a store of `_BLOCKS_KEPT` blocks.
    """

    def __init__(
        self, salt: bytes, *, grain: int = 1, tokenize: Tokenize | None = None, tokenizer: str | None = None
    ) -> None:
        self._salt = hashlib.blake2b(salt, digest_size=32, person=b"prefixlint").digest()
        self.salt_id = write(hashlib.blake2b(self._salt, digest_size=8, person=b"salt name").digest())
        self._grain = grain
        self._tokenize = tokenize
        self._tokenizer = tokenizer
        self._blocks: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}

    def label(self, value: str) -> str:
        """Give a name for a value that must not be written: equal values have equal names."""
        return write(hashlib.blake2b(value.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=6).digest())

    def make(self, body: Any, output: Output | None = None, *, time: float = 0.0) -> JsonObject:
        """Fingerprint a request body, and with a tokenizer what was generated for it."""
        made: JsonObject = {
            "salt": self.salt_id,
            "grain": self._grain,
            "segments": [self._segment(*parts) for parts in _segments(body)],
        }
        if not isinstance(body, dict):
            return made
        for key in ("cache_salt", "extra_key", "lora_path", "user", "safety_identifier", "prompt_cache_key"):
            if isinstance(body.get(key), str):
                made[key] = self.label(body[key])
        if isinstance(body.get("model"), str):
            made["model"] = body["model"]
        made.update(self._tokens(body, output, time))
        return made

    def _tokens(self, body: JsonObject, output: Output | None, time: float) -> JsonObject:
        prompts: Sequence[TokenizedPrompt] | None = _given_ids(body)
        name = "ids"
        if prompts is None and self._tokenize is not None:
            prompts = self._tokenize(body, output, time)
            name = self._tokenizer or "unnamed"
        if prompts is None:
            return {}
        start = self._start(b"tokens")
        marks, outputs = [], []
        for prompt in prompts:
            state, marked = self._chain(start, array("I", prompt.ids).tobytes(), TOKEN_BYTES, TOKEN_BYTES)
            marks.append(write(marked))
            outputs.append(write(self._chain(state, array("I", prompt.output).tobytes(), TOKEN_BYTES, TOKEN_BYTES)[1]))
        made: JsonObject = {"tokenizer": name, "prompts": marks}
        if any(outputs):
            made["outputs"] = outputs
        return made

    def _segment(self, path: str, role: str, text: str) -> list[Any]:
        data = text.encode("utf-32-le", "surrogatepass")
        state, marks = self._chain(self._start(role.encode()), data, 4 * self._grain, mark_bytes(self._grain))
        digest = hashlib.blake2b(len(text).to_bytes(8, "little"), key=state, digest_size=8).digest()
        return [path, role, len(text), write(digest), write(marks)]

    def _start(self, purpose: bytes) -> bytes:
        return hashlib.blake2b(purpose, key=self._salt, digest_size=_STATE).digest()

    def _chain(self, state: bytes, data: bytes, unit: int, width: int) -> tuple[bytes, bytes]:
        """Mark `data` in units of `unit` bytes; gives the last state and `width` bytes a unit."""
        marks = []
        size = unit * _UNITS_A_BLOCK
        for start in range(0, len(data), size):
            block = data[start : start + size]
            known = self._blocks.get((state, block))
            if known is None:
                known = _chain_block(state, block, unit, width)
                if len(self._blocks) >= _BLOCKS_KEPT:
                    del self._blocks[next(iter(self._blocks))]
                self._blocks[state, block] = known
            state, marked = known
            marks.append(marked)
        return state, b"".join(marks)


def _chain_block(state: bytes, block: bytes, unit: int, width: int) -> tuple[bytes, bytes]:
    blake2b = hashlib.blake2b
    size = _STATE + width
    marks = []
    for start in range(0, len(block), unit):
        step = blake2b(block[start : start + unit], key=state, digest_size=size).digest()
        state = step[:_STATE]
        marks.append(step[_STATE:])
    return state, b"".join(marks)


def _segments(body: Any) -> Iterator[tuple[str, str, str]]:
    """Cut a body into (path, role, text) in wire order. What is no plain string is written as JSON."""
    parts = ((*_shown_path(leaf.path), leaf) for leaf in bodies.leaves(body))
    for (path, _), group in groupby(parts, key=lambda part: (part[0], part[1] and part[0])):
        found = [(rest, leaf.value) for _, rest, leaf in group]
        last = path.rpartition(".")[2]
        if last in {"role", "type"} or path == "":
            continue
        yield path, _role(body, path), _as_text(found)


def _as_text(found: Iterable[tuple[str, Any]]) -> str:
    values = list(found)
    if len(values) == 1 and not values[0][0] and isinstance(values[0][1], str):
        return values[0][1]
    return "\n".join(f"{rest}={orjson.dumps(value).decode()}" if rest else _json(value) for rest, value in values)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _shown_path(path: str) -> tuple[str, str]:
    """Split a path into what an API defines and the user's own words."""
    shown: list[str] = []
    parts = path.split(".")
    for position, part in enumerate(parts):
        found = _PART.fullmatch(part)
        if found is None or found[1] not in _STRUCTURE:
            return ".".join(shown), ".".join(parts[position:])
        shown.append(part)
        if found[1] in _OPAQUE:
            return ".".join(shown), ".".join(parts[position + 1 :])
    return path, ""


def _role(body: Any, path: str) -> str:
    key, _, rest = path.partition("[")
    if key.split(".")[0] in {"tools", "functions", "toolConfig", "tool_config"}:
        return "tool"
    if key.split(".")[0] in {"system", "instructions", "systemInstruction", "system_instruction"}:
        return "system"
    index = rest.partition("]")[0]
    items = body.get(key) if isinstance(body, dict) else None
    if isinstance(items, list) and index.isdigit() and int(index) < len(items) and isinstance(items[int(index)], dict):
        role = items[int(index)].get("role")
        return role if role in _ROLES else "other"
    return "user" if key in {"prompt", "input", "inputs", "text"} else "other"


def _given_ids(body: JsonObject) -> list[TokenizedPrompt] | None:
    """Give the prompts of a body that holds token ids itself."""
    for key in ("prompt", "input_ids"):
        value = body.get(key)
        if isinstance(value, list) and value:
            rows = [value] if isinstance(value[0], int) else value
            if all(isinstance(row, list) and row and all(_is_id(i) for i in row) for row in rows):
                return [TokenizedPrompt(row) for row in rows]
    return None


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
