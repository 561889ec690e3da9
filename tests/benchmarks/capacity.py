"""Time the whole capacity curve of a hash trace, beside kvcache-simulator (PyPI, 0.1.3) computing as many points.

    python tests/benchmarks/capacity.py                         the curve alone
    python tests/benchmarks/capacity.py --peer .bench/kvcache   and the ratio to the peer in that environment
    python tests/benchmarks/capacity.py --points 50

The peer's environment: python -m venv .bench/kvcache && .bench/kvcache/bin/pip install kvcache-simulator==0.1.3. Each
figure is of a whole process, from its start to its JSON, the best of `--rounds`: CPU is user + system seconds. The peer
computes LRU at each size, in Python and in C++ (compiled before the clock runs); the curve here has every size, of which
the same number is printed. Both also read the trace; what the peer takes for the sizes alone is told from a run with one
size, and compared with the time from the first request put in to the last rate. A target that is missed makes the exit
code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import measure  # noqa: E402 - lies beside this file

TRACE = HERE.parents[1] / "fixtures" / "traces" / "mooncake-conversation.jsonl.gz"
SECONDS = 1.5  # of CPU, for the whole curve
TIMES = 20  # as fast as the peer's Python
_GIB_PER_BLOCK = 512 * 131_072 / 2**30  # Llama-3.1-8B in bf16


def curve(trace: Path, points: int) -> dict[str, object]:
    """Read a trace and give its curve at some pool sizes, spaced by ratio; this is what is timed."""
    import time

    import numpy as np

    from prefixlint import logs
    from prefixlint.accesses import Recorder
    from prefixlint.capacity import capacity_curve
    from prefixlint.model import BlockHashes, Request

    requests = [
        (item.namespace, item.content)
        for item in logs.read([str(trace)])
        if isinstance(item, Request) and isinstance(item.content, BlockHashes)
    ]
    started = time.process_time()
    recorder = Recorder()
    for namespace, content in requests:
        recorder.add_blocks(namespace, content)
    found = capacity_curve(recorder.accesses(cap=False))
    sizes = np.array(capacities(points)) * 512.0
    rates = found.rate(sizes).tolist()
    return {"tokens": sizes.tolist(), "hit_rate": rates, "curve_s": time.process_time() - started}


def capacities(points: int) -> list[int]:
    """Give pool sizes in blocks, from 500 to about the distinct blocks of the trace."""
    return sorted({round(500 * (182_000 / 500) ** (i / max(1, points - 1))) for i in range(points)})


def best(command: list[str], rounds: int) -> measure.Cost:
    """Run a command some times and keep the run with the least CPU; a failure ends the benchmark with its output."""
    costs = [measure.run(command) for _ in range(rounds)]
    for cost in costs:
        if cost.status:
            raise SystemExit(cost.output.decode(errors="replace")[-2000:])
    return min(costs, key=lambda cost: cost.cpu)


def peer(folder: Path, trace: Path, points: int, backend: str) -> list[str]:
    """Give the command with which the peer computes LRU at the same sizes."""
    budgets = ",".join(f"{(blocks + 0.5) * _GIB_PER_BLOCK:.6f}" for blocks in capacities(points))
    program = [str(folder / "bin" / "kvcache-simulator"), "run", "--trace", str(trace), "--model", "llama-3.1-8b"]
    return [*program, "--block-size", "512", "--policies", "lru", "--backend", backend, "--budgets-gib", budgets,
            "--format", "json", "--no-progress"]  # fmt: skip


def main() -> int:
    """Measure, print a table, and say which targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", type=Path, metavar="VENV")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(curve(options.trace, options.points)))
        return 0
    print(f"{options.points} pool sizes of {options.trace.name}\n{'':<36}{'CPU s':>9}{'wall s':>9}{'MB':>8}")
    own = [sys.executable, __file__, "--one", "--trace", str(options.trace), "--points", str(options.points)]
    mine = row("prefixlint, the whole curve", best(own, options.rounds))
    missed = report("CPU of the whole curve", mine.cpu, SECONDS, "s")
    if options.peer is not None:
        measure.run(peer(options.peer, options.trace, 1, "cpp"))  # compiles
        native = row(
            "kvcache-simulator, C++", best(peer(options.peer, options.trace, options.points, "cpp"), options.rounds)
        )
        slow = row("kvcache-simulator, Python", best(peer(options.peer, options.trace, options.points, "python"), 1))
        one = row("kvcache-simulator, Python, one size", best(peer(options.peer, options.trace, 1, "python"), 1))
        sizes = (slow.cpu - one.cpu) * options.points / (options.points - 1)
        alone = float(json.loads(mine.output)["curve_s"])
        print(
            f"    whole processes: {slow.cpu / mine.cpu:.1f} times as fast; the peer's sizes alone {sizes:.2f} s, ours {alone:.2f}"
        )
        missed |= report("the sizes alone, times as fast", -sizes / alone, -TIMES, "")
        missed |= report("CPU over the peer's C++", mine.cpu / native.cpu, 1.0, "")
    return int(missed)


def row(what: str, cost: measure.Cost) -> measure.Cost:
    """Print one measurement."""
    print(f"{what:<36}{cost.cpu:>9.2f}{cost.wall:>9.2f}{cost.peak_mb:>8,.0f}", flush=True)
    return cost


def report(what: str, value: float, limit: float, unit: str) -> bool:
    """Print a figure beside its target, and say whether it was missed; a negative limit is one to be above."""
    met = value <= limit
    word = "at least" if limit < 0 else "at most"
    print(
        f"    {what}: {abs(value):.2f} {unit}, target {word} {abs(limit):g}: {'met' if met else 'MISSED'}", flush=True
    )
    return not met


if __name__ == "__main__":
    raise SystemExit(main())
