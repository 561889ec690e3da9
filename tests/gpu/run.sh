#!/usr/bin/env bash
# Prove `prefixlint verify --gpu` on a machine with an NVIDIA GPU, in under ten minutes: `tests/gpu/run.sh [FOLDER]`.
#
# FOLDER (build/gpu) gets an environment with SGLang (11 GB from PyPI, the longest part) and a model with random weights
# in the shape of Llama 3.2 1B; nothing else is downloaded. What is proven: the GPU is found, the server is started,
# measured and ended, every prompt and cached token is the predicted one, the warm run is faster than the cold one, GPU
# utilisation and memory are read, and a sweep tells what the prefix cache is worth. The results are left in FOLDER.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder="${1:-build/gpu}"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
python="$folder/venv/bin/python"
export HF_HUB_OFFLINE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONDONTWRITEBYTECODE

command -v nvidia-smi >/dev/null || { echo 'no nvidia-smi: this needs a machine with an NVIDIA GPU' >&2; exit 2; }
nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader

step() { echo "=== $1 (after $SECONDS s)"; }

step 'installing SGLang'
[[ -x "$python" ]] || "${PYTHON:-python3}" -m venv "$folder/venv"
"$python" -m pip install --quiet --editable '.[gpu]'

step 'making a model'
[[ -f "$folder/model/config.json" ]] || "$python" tests/gpu/make_model.py "$folder/model"
"$python" -c "
import sys
from pathlib import Path
sys.path.insert(0, 'tests/engines')
import make_log
make_log.write(Path(sys.argv[1]), 240, size=20)" "$folder/log.jsonl"

verify() {
  local name="$1"
  shift
  step "verify --gpu $*"
  # --quiet is left out: the command lines and the waiting are part of what is looked at
  "$folder/venv/bin/prefixlint" verify "$folder/log.jsonl" --gpu --model "$folder/model" --format json \
    -o "$folder/$name.json" "$@"
  "$folder/venv/bin/prefixlint" report "$folder/$name.json"
}

verify sequential
verify loaded --concurrency 16 --output-length logged
verify sweep --limit 80 --concurrency 8 --sweep disable-radix-cache=on

step 'checking'
"$python" tests/gpu/check.py "$folder"
echo "proven in $SECONDS s"
