"""`prefixlint verify` against real servers on the CPU: each count that it predicts is the one that the server tells.

Run by `tests/engines/run.sh`, which installs the engines; otherwise skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from . import make_log
from .servers import Case, Servers

if not os.environ.get("PREFIXLINT_ENGINES"):
    pytest.skip("servers are started by tests/engines/run.sh", allow_module_level=True)

REQUESTS = 210
POOL = "2400"  # tokens: of the whole log, which has some 18,000 different ones, most are evicted

WHOLE = [Case("sglang", ("--page-size", page)) for page in ("1", "16")]
EVICTING = [
    Case("sglang", ("--page-size", page, "--max-total-tokens", POOL, "--radix-eviction-policy", policy))
    for policy in ("lru", "lfu")
    for page in ("1", "16")
]
VLLM = Case("vllm")
# 4,224 tokens; vLLM wants room for one prompt of the longest length
VLLM_EVICTING = Case("vllm", ("--num-gpu-blocks-override", "132", "--max-model-len", "4096"))
LLAMA = Case("xllamacpp", ("n_parallel=4", "kv_unified=1", "cache_ram_mib=0"))


@pytest.fixture(scope="session")
def servers():
    found = Servers([*WHOLE, *EVICTING, VLLM, VLLM_EVICTING, LLAMA])
    yield found
    found.close()


@pytest.fixture(scope="session")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    make_log.write(path, REQUESTS)
    return path


@pytest.fixture
def verify(tmp_path):
    def run(case, url, log, *options, code=0):
        result = tmp_path / "result.json"
        command = [sys.executable, "-m", "prefixlint", "verify", str(log), "--url", url, "--model", case.folder]
        command += ["--format", "json", "-o", str(result), "-q", *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
        assert done.returncode == code, done.stderr + json.dumps(
            [row for row in json.loads(result.read_text())["residuals"] if row["reason"]][:5] if result.exists() else []
        )
        return json.loads(result.read_text())

    return run


def is_equal(result):
    """Check that every prompt and cached token was predicted, cold and warm; give the hit rates."""
    found = result["prediction"]
    numbers = [found[key] for key in ("cached_equal", "of", "token_counts_equal", "counted")]
    assert numbers == [2 * REQUESTS] * 4, numbers
    assert found["max_error_tokens"] == 0
    for run in result["runs"]:
        assert run["hit_rate"] == pytest.approx(run["predicted_hit_rate"])
        if run["server"] is not None and run["server"]["hit_rate"] is not None:
            assert run["hit_rate"] == pytest.approx(run["server"]["hit_rate"], abs=0.001)
    return [run["hit_rate"] for run in result["runs"]]


def is_explained(result):
    """Check that what differs under load is what the order of requests at once explains, and that it is not all."""
    found = result["prediction"]
    assert found["of"] == found["token_counts_equal"] == 2 * REQUESTS
    assert found["unexplained"] == 0, [row for row in result["residuals"] if not row["explained"]][:5]
    assert found["cached_equal"] + found["explained"] == found["of"]
    assert found["cached_equal"] >= 0.8 * found["of"]


def gives_what_was_said(verify, case, url, folder):
    """Replay a log with a clock at the head of prompts beside its fixed twin: the hit rate moves as analyze said.

    Without the answers that the log's own model gave: this one writes others, so that later turns cannot reuse them.
    """
    log, said = folder / "clock.jsonl", folder / "said.json"
    make_log.write(log, 40, 11, answers=False)
    command = [sys.executable, "-m", "prefixlint", "analyze", str(log), "--engine", "sglang", "--model", case.folder]
    subprocess.run([*command, "--what-if", "all", "--format", "json", "-o", str(said), "-q"], check=True)
    analysis = json.loads(said.read_text())
    found = verify(case, url, log, "--flush", "--what-if", "--rounds", "1")["comparison"]["hit_rate"]
    assert found["before"] == pytest.approx(analysis["engines"][0]["hit_rate"], abs=0.001)
    fixed = next(one for one in analysis["what_if"] if one["cumulative"] and one["family"] is None)
    assert found["after"] == pytest.approx(fixed["hit_rate"], abs=0.01)
    assert found["change"] > 0.1


@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_sglang(servers, verify, log, case, tmp_path):
    with servers.running(case) as url:
        cold, warm = is_equal(verify(case, url, log, "--flush"))
        assert 0.4 < cold < warm < 1
        if case is WHOLE[0]:
            is_explained(verify(case, url, log, "--concurrency", "4"))
            gives_what_was_said(verify, case, url, tmp_path)


@pytest.mark.parametrize("case", EVICTING, ids=str)
def test_sglang_with_a_pool_that_is_too_small(servers, verify, log, case):
    with servers.running(case) as url:
        result = verify(case, url, log, "--flush")
        cold, warm = is_equal(result)
        assert result["prediction"]["capacity_tokens"] == int(POOL)
        assert all(run["server"]["evicted_tokens"] > 10 * int(POOL) for run in result["runs"])
        assert abs(warm - cold) < 0.1  # what was served before is gone


def test_vllm(servers, verify, log):
    with servers.running(VLLM) as url:
        result = verify(VLLM, url, log, "--flush")
        cold, warm = is_equal(result)
        assert result["prediction"]["block_size"] == 32
        assert 0.3 < cold < warm < 1
        is_explained(verify(VLLM, url, log, "--concurrency", "4"))


def test_vllm_with_a_pool_that_is_too_small(servers, verify, log):
    with servers.running(VLLM_EVICTING) as url:
        result = verify(VLLM_EVICTING, url, log, "--flush")
        cold, warm = is_equal(result)
        assert result["prediction"]["capacity_tokens"] == 132 * 32
        assert abs(warm - cold) < 0.1  # what was served before is gone


def test_llama_cpp_serves_what_its_slots_hold(servers, verify, log):
    with servers.running(LLAMA) as url:
        cold, _ = is_equal(verify(LLAMA, url, log))
        assert cold > 0.2
