"""Time `prefixlint check` on Python trees, beside pcdlint (PyPI, 0.3.0), a linter for the same faults in Python alone.

    python tests/benchmarks/check_vs_pcdlint.py                          this interpreter's library and site-packages
    python tests/benchmarks/check_vs_pcdlint.py --peer .bench/pcdlint    and the ratio to the peer in that environment
    python tests/benchmarks/check_vs_pcdlint.py ~/src/agent --lines 0    all of a tree of your own

The peer's environment: python -m venv .bench/pcdlint && .bench/pcdlint/bin/pip install pcdlint==0.3.0. The files are
copied into a folder of their own, so that both tools read the same ones and nothing is written into the trees: an even
choice of `--lines` lines (0: all), in which prefixlint leaves out nothing by name. Figures are of whole processes, the
best of `--rounds`, CPU as user + system seconds. A target that is missed makes the exit code 1.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import measure  # noqa: E402 - lies beside this file
from analyze_vs_peers import Board  # noqa: E402

PREFIXLINT = str(Path(sys.executable).with_name("prefixlint"))
COLD = 5.0  # CPU seconds for 100,000 lines
WARM = 1.0
START = 0.12  # seconds of CPU for --version and --help
CHANGED = 0.6  # for a run on FILES files
FILES = 20
_SETTLED = 0.2  # seconds after which a changed file's times are old enough to be trusted


def sources(trees: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Give the Python files of trees, in an even order that does not change, with names for their copies."""
    found = {
        path: f"tree{number}/{path.relative_to(tree).as_posix()}"
        for number, tree in enumerate(trees)
        for path in tree.rglob("*.py")
        if path.is_file()
    }
    yield from sorted(found.items(), key=lambda item: hashlib.blake2b(item[1].encode()).digest())


def copy(trees: Sequence[Path], into: Path, limit: int) -> tuple[int, list[str]]:
    """Copy files until they have `limit` lines (0: all of them); give the lines and the files' names."""
    lines, names = 0, []
    for path, shown in sources(trees):
        name = shown.replace("site-packages", "packages")  # a folder of that name is never entered
        data = path.read_bytes()
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        lines += data.count(b"\n")
        names.append(name)
        if limit and lines >= limit:
            break
    (into / "prefixlint.toml").write_text("exclude = []\n", encoding="utf-8")
    return lines, sorted(names)


def best(
    command: list[str], folder: Path, rounds: int, *, cold: bool = False, change: Sequence[str] = ()
) -> measure.Cost:
    """Run a linter in a folder a few times and keep the run with the least CPU; findings are no failure.

    `cold` removes prefixlint's cache before each run, `change` are files that get another comment at their end.
    """
    costs = []
    for round_ in range(rounds):
        if cold:
            shutil.rmtree(folder / ".prefixlint_cache", ignore_errors=True)
        for name in change:
            with (folder / name).open("ab") as file:
                file.write(f"\n# {round_}\n".encode())
        time.sleep(_SETTLED)
        cost = measure.run(command, cwd=str(folder))
        if cost.status not in (0, 1, 2) or b"Traceback (most recent call last)" in cost.output:
            raise SystemExit(
                f"{' '.join(command)} ended with {cost.status}:\n{cost.output.decode(errors='replace')[-2000:]}"
            )
        costs.append(cost)
    return min(costs, key=lambda cost: cost.cpu)


def linting(board: Board, folder: Path, lines: int, names: list[str], rounds: int) -> measure.Cost:
    """Time runs of prefixlint without a cache, with one, and on a few changed files; give the first."""
    check = [PREFIXLINT, "check", "."]
    cold = best(check, folder, rounds, cold=True)
    board.row(f"prefixlint check, {lines:,} lines, first run", cold)
    board.target("CPU for 100,000 lines", cold.cpu / lines * 100_000, COLD, "s")
    warm = best(check, folder, rounds)
    board.row("prefixlint check, nothing changed", warm)
    board.target("CPU for 100,000 lines", warm.cpu / lines * 100_000, WARM, "s")
    few = names[:: max(1, len(names) // FILES)][:FILES]
    changed = best([PREFIXLINT, "check", *few], folder, rounds, change=few)
    board.row(f"prefixlint check FILES, {len(few)} files, all changed", changed)
    board.target("CPU", changed.cpu, CHANGED, "s")
    return cold


def starting(board: Board, folder: Path, rounds: int) -> None:
    """Time what a shell waits for before anything is done."""
    for option in ("--version", "--help"):
        cost = best([PREFIXLINT, option], folder, max(rounds, 5))
        board.row(f"prefixlint {option}", cost)
        board.target("CPU", cost.cpu, START, "s")


def main(argv: Iterable[str] | None = None) -> int:
    """Copy the trees and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, help="folders with Python files")
    parser.add_argument(
        "--peer", type=lambda name: Path(name).resolve(), help="the environment in which pcdlint is installed"
    )
    parser.add_argument("--lines", type=int, default=100_000, help="how many lines to take of the trees; 0 for all")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each command; the best counts")
    args = parser.parse_args(None if argv is None else list(argv))
    trees = args.trees or [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    print(measure.machine())
    board = Board()
    with tempfile.TemporaryDirectory(prefix="prefixlint-bench-") as work:
        folder = Path(work)
        lines, names = copy(trees, folder, args.lines)
        if not names:
            raise SystemExit(f"no Python files below {', '.join(map(str, trees))}")
        print(f"{len(names):,} files with {lines:,} lines")
        print(f"{'':<44} {'CPU s':>8} {'wall s':>8} {'peak MB':>9}")
        cold = linting(board, folder, lines, names, args.rounds)
        starting(board, folder, args.rounds)
        if args.peer is not None:
            peer = best([str(args.peer / "bin" / "pcdlint"), "."], folder, 1)
            board.row("pcdlint 0.3.0", peer)
            board.target("CPU, share of pcdlint's", cold.cpu / peer.cpu, 1, f"(1/{peer.cpu / cold.cpu:.1f})")
    if board.missed:
        print(f"missed: {', '.join(board.missed)}")
    return 1 if board.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
