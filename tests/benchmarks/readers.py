"""The speed of each log reader per byte, beside the OpenAI chat reader's in the same run.

    python tests/benchmarks/readers.py [MEGABYTES] [NAME PART...]

Each sample is repeated to the size asked for (20 MB), with ids that stay distinct, and read from a file in CPU seconds.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from prefixlint.errors import LogRefusedError
from prefixlint.logs import read
from prefixlint.model import Request

SAMPLES = Path(__file__).parents[2] / "fixtures" / "logs" / "samples"
BASE = "openai_chat_pairs.jsonl"
# what links the lines of a transcript, made distinct in each repetition
LINKED = {
    "claude_code_session.jsonl": ["u1", "u2", "u3", "a1", "a2", "a3", "a4", "msg_r", "s-alder"],
    "codex_rollout.jsonl": ["01a7c9e4-6d12-7b3a-9f42-0000000000aa"],
}


def repeated(path: Path, size: int) -> str:
    """Give at least `size` characters of a sample's records, one a line."""
    text = path.read_text("utf-8")
    if path.suffix == ".csv":
        head, _, rows = text.partition("\n")
        return head + "\n" + rows * (size // len(rows) + 1)
    if text.startswith(("{\n", "[\n")):
        text = json.dumps(json.loads(text), ensure_ascii=False) + "\n"
    made, done, number = [], 0, 0
    while done < size:
        piece = text
        for name in LINKED.get(path.name, []):
            quote = "" if name.endswith("_r") else '"'
            piece = piece.replace(f'"{name}{quote}', f'"{number}-{name}{quote}')
        piece = piece.replace('"spanId": "', f'"spanId": "{number}-')
        made.append(piece)
        done += len(piece)
        number += 1
    return "".join(made)


def seconds(path: Path) -> tuple[float, int]:
    """Give the CPU seconds of reading a file, the better of two, and the number of its requests."""
    best, requests = float("inf"), 0
    for _ in range(2):
        start = time.process_time()
        try:
            requests = sum(isinstance(result, Request) for result in read([str(path)]))
        except LogRefusedError:  # a trace of lengths: read to its end, and nothing in it
            requests = 0
        best = min(best, time.process_time() - start)
    return best, requests


def main() -> None:
    """Print the table, the slowest last."""
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 20_000_000
    wanted = sys.argv[2:]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for sample in sorted(SAMPLES.iterdir()):
            if sample.suffix in (".gz", ".md", ".parquet") or sample.name == "expected.json":
                continue
            if wanted and sample.name != BASE and not any(part in sample.name for part in wanted):
                continue
            target = Path(folder) / sample.name
            target.write_text(repeated(sample, size), "utf-8")
            took, requests = seconds(target)
            rows.append((took / target.stat().st_size * 1e9, requests, sample.name))
            target.unlink()
    base = next(speed for speed, _, name in rows if name == BASE)
    print(f"{'ns/byte':>8} {'times':>6} {'requests':>9}  sample")
    for speed, requests, name in sorted(rows):
        print(f"{speed:8.2f} {speed / base:6.2f} {requests:9d}  {name}")


if __name__ == "__main__":
    main()
