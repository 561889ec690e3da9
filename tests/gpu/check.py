"""Check the results that `run.sh` has written: `check.py FOLDER [--rehearsal]`. What does not hold makes the exit code 1.

In a rehearsal on a CPU nothing is said of the GPU, nor of times: SGLang's attention there computes prefixes again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

Claims = dict[str, bool]


def sequential(result: dict[str, Any], requests: int) -> Claims:
    """Requests one by one: every count is the predicted one."""
    found = result["prediction"]
    cold, warm = result["runs"][:2]
    return {
        "SGLang ran": result["engine"]["name"] == "sglang",
        "it was started here": result["engine"]["launched"],
        "token counts are equal": found["token_counts_equal"] == found["counted"] == 2 * requests,
        "cached tokens are equal": found["cached_equal"] == found["of"] == 2 * requests,
        "the counters agree": all(abs(r["hit_rate"] - r["server"]["hit_rate"]) < 0.001 for r in (cold, warm)),
    }


def sequential_on_gpu(result: dict[str, Any], _requests: int) -> Claims:
    """What needs the GPU of requests one by one."""
    cold, warm = result["runs"][:2]
    return {
        "it ran on the GPU": result["engine"]["device"] == "cuda",
        "a hit is faster than a miss": warm["ttft_ms"]["p50"] < cold["ttft_ms"]["p95"],
        "the client took under 1 ms": all(run["overhead_ms"]["p50"] < 1 for run in (cold, warm)),
        "the GPU was watched": all(
            run["resources"]["gpus"] and run["resources"]["gpus"][0]["used"]["highest"] > 2**30 for run in (cold, warm)
        ),
    }


def loaded(result: dict[str, Any], _requests: int) -> Claims:
    """Requests at once, with outputs: what differs is explained."""
    found = result["prediction"]
    return {
        "differences under load are explained": found["unexplained"] == 0,
        "token counts are equal under load": found["token_counts_equal"] == found["counted"],
        "no request failed": not any(run["errors"] for run in result["runs"]),
    }


def loaded_on_gpu(result: dict[str, Any], _requests: int) -> Claims:
    """What needs the GPU of requests at once."""
    return {"the GPU was busy": max(run["resources"]["gpus"][0]["busy"]["highest"] for run in result["runs"]) > 0.1}


def sweep(result: dict[str, Any], _requests: int) -> Claims:
    """Without the prefix cache nothing is served from it."""
    rows = {row["name"]: row for row in result["comparison"]["variants"]}
    off = rows["disable-radix-cache on"]
    return {
        "all servers started": not any(row["error"] for row in rows.values()),
        "no cache, no hits": off["warm"]["hit_rate"]["after"] in (0, None),
    }


def sweep_on_gpu(result: dict[str, Any], _requests: int) -> Claims:
    """What needs the GPU of the sweep: the warm run gains nothing without the cache."""
    (off,) = (row for row in result["comparison"]["variants"] if row["name"] == "disable-radix-cache on")
    return {"the cache is worth something": off["warm"]["ttft_p50"]["change"] > 0}


def main() -> int:
    failed, folder = 0, Path(sys.argv[1])
    requests = len((folder / "log.jsonl").read_bytes().splitlines())
    checks = [sequential, loaded, sweep]
    if "--rehearsal" not in sys.argv[2:]:
        checks += [sequential_on_gpu, loaded_on_gpu, sweep_on_gpu]
    for check in checks:
        name = check.__name__.removesuffix("_on_gpu")
        result = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for claim, holds in check(result, requests).items():
            print(f"{'ok    ' if holds else 'FAILED'} {name}: {claim}")
            failed += not holds
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
