"""Compare the analysis with a running SGLang or vLLM server, request by request, through the recording proxy.

    python tests/benchmarks/against_server.py http://127.0.0.1:30000 MODEL_FOLDER [REQUESTS]

The server must report cached tokens (SGLang: --enable-cache-report, vLLM: --enable-prompt-tokens-details), hold nothing
in its cache yet, and have room for all requests (some 300 tokens each). What is printed is how many requests have the
server's prompt tokens and cached tokens, and how many do not.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

WORDS = [
    "amber",
    "brook",
    "cedar",
    "delta",
    "ember",
    "frost",
    "grove",
    "harbor",
    "iris",
    "juniper",
    "kelp",
    "lagoon",
    "meadow",
    "north",
    "orchard",
    "pine",
]
PORT = 31978
LONGEST = 6_000  # characters of a conversation, after which a new one begins


def sentence(rng: random.Random, words: int) -> str:
    """Give some words."""
    return " ".join(rng.choice(WORDS) for _ in range(words))


def send(base: str, body: dict[str, Any]) -> str:
    """Send a chat request, streamed or not; give the answer's text."""
    request = urllib.request.Request(f"{base}/v1/chat/completions", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=120) as response:
        raw = response.read().decode()
    if not body["stream"]:
        return json.loads(raw)["choices"][0]["message"]["content"] or ""
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event.get("choices", ()))


def drive(base: str, requests: int) -> None:
    """Send conversations of three applications, one with a counter at its head; some with a salt, half of them streamed."""
    rng = random.Random(5)
    systems = ["You are the desk of the library. ", "Ticket {}. You plan routes. ", "You sort parcels. "]
    systems = [text + sentence(rng, 100) for text in systems]
    conversations: list[tuple[int, list[dict[str, str]]]] = []
    for number in range(requests):
        if not conversations or rng.random() < 0.35:
            conversations.append((kind := rng.randrange(3), [{"role": "system", "content": systems[kind]}]))
        kind, messages = rng.choice(conversations)
        messages[0] = {"role": "system", "content": systems[kind].format(number)}
        messages.append({"role": "user", "content": sentence(rng, rng.randint(3, 30))})
        body: dict[str, Any] = {
            "model": "m",
            "messages": messages,
            "max_tokens": rng.choice([1, 8, 16]),
            "temperature": 0,
        }
        body["stream"] = rng.random() < 0.5
        if body["stream"]:
            body["stream_options"] = {"include_usage": True}
        if rng.random() < 0.1:
            body["cache_salt"] = f"salt {rng.randrange(2)}"
        messages.append({"role": "assistant", "content": send(base, body)})
        if sum(len(message["content"]) for message in messages) > LONGEST:
            conversations.remove((kind, messages))


def main() -> int:
    """Record, analyze, compare."""
    upstream, model = sys.argv[1], sys.argv[2]
    requests = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    program = str(Path(sys.executable).with_name("prefixlint"))
    with tempfile.TemporaryDirectory() as folder:
        log, lines = f"{folder}/log.jsonl", f"{folder}/requests.jsonl"
        proxy = subprocess.Popen(
            [program, "record", "--upstream", upstream, "--port", str(PORT), "-o", log, "--with-output"]
        )
        try:
            time.sleep(2)
            drive(f"http://127.0.0.1:{PORT}", requests)
        finally:
            proxy.send_signal(signal.SIGINT)
            proxy.wait()
        subprocess.run(
            [program, "analyze", log, "--model", model, "--requests-out", lines, "-q", "-o", f"{folder}/report"],
            check=True,
        )
        found = [json.loads(line) for line in Path(lines).read_text().splitlines()]
        said = [json.loads(line)["usage"]["prompt"] for line in Path(log).read_text().splitlines()]
    counted = sum(one["prompt_tokens"] == tokens for one, tokens in zip(found, said, strict=True))
    print(f"prompt tokens equal in {counted} of {len(found)} requests")
    for engine in ("sglang", "vllm"):
        equal = sum(one["engines"][engine]["cached_tokens"] == one["reported_cached_tokens"] for one in found)
        print(f"cached tokens as {engine} equal in {equal} of {len(found)} requests")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
