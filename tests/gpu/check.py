"""Check the results that `run.sh` has written: `check.py FOLDER`. Says what does not hold, and exits with 1 then."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def sequential(result: dict[str, Any]) -> dict[str, bool]:
    """Requests one by one: every count is the predicted one."""
    found = result["prediction"]
    cold, warm = result["runs"][:2]
    return {
        "SGLang ran on the GPU": (result["engine"]["name"], result["engine"]["device"]) == ("sglang", "cuda"),
        "it was started here": result["engine"]["launched"],
        "token counts are equal": found["token_counts_equal"] == found["counted"] == 480,
        "cached tokens are equal": found["cached_equal"] == found["of"] == 480,
        "the counters agree": all(abs(r["hit_rate"] - r["server"]["hit_rate"]) < 0.001 for r in (cold, warm)),
        "a hit is faster than a miss": warm["ttft_ms"]["p50"] < cold["ttft_ms"]["p95"],
        "the client took under 1 ms": all(run["overhead_ms"]["p50"] < 1 for run in (cold, warm)),
        "the GPU was watched": all(
            run["resources"]["gpus"] and run["resources"]["gpus"][0]["used"]["highest"] > 2**30 for run in (cold, warm)
        ),
    }


def loaded(result: dict[str, Any]) -> dict[str, bool]:
    """Requests at once, with outputs: what differs is explained."""
    found = result["prediction"]
    return {
        "differences under load are explained": found["unexplained"] == 0,
        "token counts are equal under load": found["token_counts_equal"] == found["counted"],
        "no request failed": not any(run["errors"] for run in result["runs"]),
        "the GPU was busy": max(run["resources"]["gpus"][0]["busy"]["highest"] for run in result["runs"]) > 0.1,
    }


def sweep(result: dict[str, Any]) -> dict[str, bool]:
    """Without the prefix cache nothing is served from it, and the warm run gains nothing."""
    rows = {row["name"]: row for row in result["comparison"]["variants"]}
    off = rows["disable-radix-cache on"]
    return {
        "all servers started": not any(row["error"] for row in rows.values()),
        "no cache, no hits": off["warm"]["hit_rate"]["after"] in (0, None),
        "the cache is worth something": off["warm"]["ttft_p50"]["change"] > 0,
    }


def main() -> int:
    failed = 0
    for check in (sequential, loaded, sweep):
        name = check.__name__
        result = json.loads((Path(sys.argv[1]) / f"{name}.json").read_text(encoding="utf-8"))
        for claim, holds in check(result).items():
            print(f"{'ok    ' if holds else 'FAILED'} {name}: {claim}")
            failed += not holds
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
