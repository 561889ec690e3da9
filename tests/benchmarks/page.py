"""Time the HTML report of a log in Chromium: how long until it is drawn, beside a page as large that draws nothing.

    python tests/benchmarks/page.py result.json           a saved result
    python tests/benchmarks/page.py --requests 10000      of a log that is written for it

Needs playwright and a Chromium on the path (`tests/browser/run.sh` installs both; with its playwright: PYTHONPATH=
build/browser/site). The pages are opened in turn; the best times of all rounds are printed, in milliseconds from the
start of the navigation to `domComplete`, and their ratio.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

PREFIXLINT = [sys.executable, "-m", "prefixlint"]


def result(folder: Path, requests: int) -> Path:
    """Analyze a written log of that many requests, most of which miss for a reason; give the saved result."""
    import generate

    log, saved = folder / "log.jsonl", folder / "result.json"
    with log.open("wb") as file:
        generate.write(file, count=requests, seed=1)
    command = [*PREFIXLINT, "analyze", str(log), "--what-if", "none", "--why", "2000", "--format", "json", "-q"]
    subprocess.run([*command, "-o", str(saved)], check=False)
    return saved


def drawn(pages: list[Path], rounds: int) -> dict[Path, float]:
    """Open each page in turn; give the best time of each, in milliseconds."""
    from playwright.sync_api import sync_playwright

    times: dict[Path, list[float]] = {page: [] for page in pages}
    chromium = os.environ.get("PREFIXLINT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(rounds):
            for path in pages:
                page = browser.new_page()
                page.goto(path.as_uri())
                asked = "performance.getEntriesByType('navigation')[0].domComplete"
                times[path].append(page.evaluate(asked))
                page.close()
        browser.close()
    return {path: min(each) for path, each in times.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, nargs="?")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = options.result or result(folder, options.requests)
        page, inert = folder / "page.html", folder / "inert.html"
        subprocess.run([*PREFIXLINT, "report", str(saved), "--format", "html", "-o", str(page)], check=True)
        letters = "".join(random.Random(1).choices("0123456789abcdef", k=page.stat().st_size))
        inert.write_text(f'<!doctype html><script type="application/json">{letters}</script>')
        times = drawn([page, inert], options.rounds)
    print(f"{len(letters) / 1e6:.1f} MB")
    print(f"drawn {times[page]:.0f} ms, nothing drawn {times[inert]:.0f} ms: {times[page] / times[inert]:.1f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
