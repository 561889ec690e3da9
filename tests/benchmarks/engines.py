"""Time `analyze` with four engines beside one, in turn, in CPU seconds of whole processes.

    python tests/benchmarks/engines.py log.jsonl                         a log of one's own
    python tests/benchmarks/engines.py --requests 10000                  one that generate.py writes
    python tests/benchmarks/engines.py log.jsonl --rounds 5 --capacity 400000
    python tests/benchmarks/engines.py log.jsonl --whole sglang vllm openai anthropic

The runs alternate, so that what else the machine does falls on both alike, and the ratio is that of the best runs. The
one engine is the first of the four, which should be the cheapest. With `--whole` nothing is left out and no pool is
bounded, so that causes are looked for and fixes are tried; a machine with other work measures that badly. A target that
is missed makes the exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import measure  # noqa: E402 - lies beside this file

ENGINES = ("sglang", "vllm", "tensorrt-llm", "lmcache")
TIMES = 1.5  # as long as with one engine


def command(log: Path, engines: tuple[str, ...], capacity: int | None) -> list[str]:
    """Give the command that is timed.

    With a capacity, caches alone are; what is tried of fixes would replay the log again, and is another stage.
    """
    chosen = [word for name in engines for word in ("--engine", name)]
    caches = [] if capacity is None else ["--capacity", str(capacity), "--why", "0"]
    return [sys.executable, "-m", "prefixlint", "analyze", str(log), *chosen, *caches, "--format", "json", "-q"]


def main() -> int:
    """Measure, print each round, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, nargs="?")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--capacity", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--whole", nargs="+", metavar="ENGINE", help="engines for a run without limits, all stages")
    options = parser.parse_args()
    chosen = tuple(options.whole or ENGINES)
    capacity = None if options.whole else options.capacity
    with tempfile.TemporaryDirectory() as folder:
        log = options.log
        if log is None:
            import generate

            log = Path(folder) / "log.jsonl"
            with log.open("wb") as file:
                generate.write(file, count=options.requests, seed=1)
        costs: dict[tuple[str, ...], list[float]] = {chosen[:1]: [], chosen: []}
        for _ in range(options.rounds):
            for engines, found in costs.items():
                cost = measure.run(command(log, engines, capacity))
                if cost.status:
                    raise SystemExit(cost.output.decode(errors="replace")[-2000:])
                found.append(cost.cpu)
                print(f"{len(engines)} engine(s)  {cost.cpu:>7.2f} s of CPU  {cost.peak_mb:>6,.0f} MB", flush=True)
    one, four = (min(found) for found in costs.values())
    met = four <= TIMES * one
    print(f"four engines over one: {four / one:.2f}, target at most {TIMES:g}: {'met' if met else 'MISSED'}")
    return not met


if __name__ == "__main__":
    raise SystemExit(main())
