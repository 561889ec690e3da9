"""The least that an analysis of a log has to do: load the tokenizer, parse every line, tokenize each distinct text once.

    python tests/benchmarks/floor.py TOKENIZER.json LOG.jsonl

`prefixlint analyze` is measured against this: what it adds is rendering, matching and the report.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from fastokens import Tokenizer


def texts(body: dict[str, Any]) -> list[str]:
    """Give the segments of one request as a chat template leaves them: tools and system message in one, then each message."""
    tools = body.get("tools")
    head = orjson.dumps(tools).decode() if tools else ""
    found = []
    for message in body["messages"]:
        calls = "".join(orjson.dumps(call["function"]).decode() for call in message.get("tool_calls") or ())
        found.append(head + (message.get("content") or "") + calls)
        head = ""
    return found


def main() -> int:
    """Do the work and print how much there was."""
    tokenizer = Tokenizer.from_file(sys.argv[1])
    distinct: dict[str, None] = {}
    requests = 0
    with Path(sys.argv[2]).open("rb") as log:
        for line in log:
            distinct.update(dict.fromkeys(texts(orjson.loads(line))))
            requests += 1
    # one flat buffer of uint32: no Python object a token, the fastest way that fastokens offers
    ids, _offsets = tokenizer.encode_batch_flat(list(distinct))
    tokens = len(ids) // 4
    print(f"{requests} requests, {len(distinct)} distinct texts, {tokens} tokens in them")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
