"""The script that proves `verify --gpu`, on the CPU: all of it that needs no GPU.

Run by `tests/engines/run.sh`, which installs SGLang; otherwise skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if not os.environ.get("PREFIXLINT_ENGINES"):
    pytest.skip("servers are started by tests/engines/run.sh", allow_module_level=True)

SCRIPT = Path(__file__).parents[1] / "gpu" / "run.sh"


def test_what_needs_no_gpu_is_proven(tmp_path):
    engine = Path(os.environ["PREFIXLINT_ORACLE_HOME"]) / "sglang" / "bin" / "python"
    environment = {**os.environ, "PYTHON": sys.executable, "PREFIXLINT_SGLANG_PYTHON": str(engine)}
    command = [SCRIPT, "--rehearse", tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    assert "FAILED" not in done.stdout
    assert done.stdout.count("ok    ") == 10
