#!/usr/bin/env bash
# Our caches beside the engines' own code, without a GPU: SGLang's RadixCache and vLLM's KVCacheManager, over 10,000
# random traces each, on all cores. `run.sh [sglang] [vllm]` runs the named ones; PREFIXLINT_ORACLE_TRACES=500 takes
# fewer traces.
#
# tests/engines/install.sh installs them first, where that was not done; PREFIXLINT_ORACLE_HOME says where they are.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PREFIXLINT_ORACLE_HOME="${PREFIXLINT_ORACLE_HOME:-$PWD/build/engines}"
read -ra engines <<<"${*:-sglang vllm}"
tests/engines/install.sh "${engines[@]}"
unset PYTHONDONTWRITEBYTECODE # the engines are thousands of modules, and each process imports them
for name in "${engines[@]}"; do
  echo "=== $name"
  # the engines warn a lot when they are imported; what they warn of is not ours to fix
  PYTHONPATH=. OMP_NUM_THREADS=1 SGLANG_USE_CPU_ENGINE=1 VLLM_TARGET_DEVICE=cpu \
    "$PREFIXLINT_ORACLE_HOME/$name/bin/python" -m pytest -q -n auto -o filterwarnings=default -W ignore \
    -p no:cacheprovider "tests/oracles/test_$name.py"
done
