import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixlint import rulebook, servers
from prefixlint.shellwords import MAX_WORDS, commands, whole
from prefixlint.sources import SourceFile, decode, encode, kind_of
from prefixlint.sources.deploy import start_of
from tests.surfaces import codes, found, run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "deployments"
SNIPPETS = json.loads((FIXTURES / "snippets.json").read_text(encoding="utf-8"))
PAGES = [rulebook.rules()[code] for code in ("PFX110", "PFX503", "PFX701", "PFX703", "PFX704", "PFX705")]


@pytest.mark.parametrize("rule", PAGES, ids=lambda rule: rule.code)
def test_the_examples_of_a_page_are_found_at_their_lines_and_the_others_are_silent(rule):
    names = {"python": "app.py"}
    for example in (each for each in rule.examples if each.language != "log"):
        hits = [
            line for code, line, _ in found(example.name or names[example.language], example.text) if code == rule.code
        ]
        if example.section == "Example":
            assert example.lines, "an example marks its lines"
        assert hits == list(example.lines if example.section == "Example" else ())


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: f"{s['rule']}-{s['expect']}")
def test_snippets_fire_or_stay_quiet(snippet):
    fired = snippet["rule"] in codes(snippet["file"], snippet["text"])
    assert fired is (snippet["expect"] == "fire"), snippet["why"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("serve.sh", "vllm serve m --enable-prefix-caching=False", [("PFX701", 1)]),
        ("serve.sh", "vllm serve m --enable_prefix_caching false", [("PFX701", 1)]),
        ("serve.sh", "vllm serve m --no_enable_prefix_caching", [("PFX701", 1)]),
        (
            "serve.sh",
            "python3 -m vllm.entrypoints.openai.api_server --model m --no-enable-prefix-caching",
            [("PFX701", 1)],
        ),
        ("serve.sh", 'ARGS="--no-enable-prefix-caching"\nvllm serve m $ARGS', [("PFX701", 1)]),
        ("serve.sh", 'ARGS=(\n  --port 1\n  --no-enable-prefix-caching\n)\nvllm serve m "${ARGS[@]}"', [("PFX701", 3)]),
        (
            "serve.sh",
            "docker run --gpus all -p 8000:8000 vllm/vllm-openai:latest --model m --no-enable-prefix-caching",
            [("PFX701", 1)],
        ),
        (
            "serve.sh",
            "docker run --gpus all -e LMCACHE_REMOTE_URL=lm://x -p 8000:8000 \\\n vllm/vllm-openai:latest \\\n --model m --prefix-caching-hash-algo builtin",
            [("PFX704", 2), ("PFX701", 3)],
        ),
        (
            "serve.sh",
            "docker run --gpus all --shm-size 32g lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path m --disable_radix_cache",
            [("PFX701", 1)],
        ),
        ("serve.sh", "docker run ghcr.io/ggml-org/llama.cpp:server -m /m.gguf --no-cache-prompt", [("PFX701", 1)]),
        ("serve.sh", 'bash -lc "source x && vllm serve m --no-enable-prefix-caching"', [("PFX701", 1)]),
        (
            "serve.sh",
            "nohup env A=1 CUDA_VISIBLE_DEVICES=0 vllm serve m --no-enable-prefix-caching > log 2>&1 &",
            [("PFX701", 1)],
        ),
        ("serve.sh", "llama-server -m x.gguf --no-cache-prompt", [("PFX701", 1)]),
        ("serve.sh", "LLAMA_ARG_CACHE_PROMPT=0 llama-server -m x.gguf", [("PFX701", 1)]),
        ("serve.sh", "PREFIX_CACHING=0 text-generation-launcher --model-id m", [("PFX701", 1)]),
        (
            "serve.sh",
            "export PREFIX_CACHING=0\ntext-generation-launcher --model-id m --cuda-graphs 0",
            [("PFX701", 1), ("PFX705", 2)],
        ),
        (
            "Dockerfile",
            'FROM vllm/vllm-openai:v0.9\nENTRYPOINT ["vllm", "serve", "m"]\nCMD ["--no-enable-prefix-caching", "--enforce-eager"]',
            [("PFX701", 3), ("PFX705", 3)],
        ),
        (
            "Dockerfile",
            'FROM vllm/vllm-openai:v0.9\nCMD ["--model", "m", "--no-enable-prefix-caching"]',
            [("PFX701", 2)],
        ),
        (
            "Dockerfile.gpu",
            'FROM x\nENV PREFIX_CACHING=0\nENTRYPOINT ["text-generation-launcher"]\nCMD ["--model-id", "m"]',
            [("PFX701", 2)],
        ),
        ("Dockerfile", 'FROM x\nCMD ["sh", "-c", "exec vllm serve m --no-enable-prefix-caching"]', [("PFX701", 2)]),
        (
            "Dockerfile",
            "FROM x\nCMD vllm serve m \\\n    --port 8000 \\\n    # comment\n    --no-enable-prefix-caching",
            [("PFX701", 5)],
        ),
        (
            "Dockerfile",
            'FROM x\nENTRYPOINT ["python3", "-m", \\\n  "sglang.launch_server", \\\n  "--disable-radix-cache"]',
            [("PFX701", 4)],
        ),
        (
            "docker-compose.yml",
            "services:\n  a:\n    image: vllm/vllm-openai:latest\n    command: --model m --no-enable-prefix-caching\n",
            [("PFX701", 4)],
        ),
        (
            "docker-compose.yml",
            "services:\n  a:\n    image: vllm/vllm-openai:latest\n    command:\n      - --model=m\n      - --no-enable-prefix-caching\n",
            [("PFX701", 6)],
        ),
        (
            "docker-compose.yml",
            "services:\n  a:\n    image: lmsysorg/sglang\n    entrypoint: python3 -m sglang.launch_server\n    command: >\n      --model-path m\n      --disable-radix-cache\n",
            [("PFX701", 7)],
        ),
        (
            "docker-compose.yml",
            'services:\n  a:\n    image: x\n    command: >-\n      bash -c "\n        vllm serve m\n        --no-enable-prefix-caching\n      "\n',
            [("PFX701", 7)],
        ),
        (
            "docker-compose.yml",
            "services:\n  a:\n    image: x\n    command: |\n      vllm serve m \\\n        --no-enable-prefix-caching\n",
            [("PFX701", 6)],
        ),
        (
            "docker-compose.yml",
            'services:\n  a:\n    image: vllm/vllm-openai\n    deploy:\n      replicas: 3\n    command: ["--model", "m","--enable-prompt-tokens-details"]\n',
            [("PFX703", 5)],
        ),
        (
            "k8s.yaml",
            'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:latest\n    command: ["/bin/sh", "-c"]\n    args: ["vllm serve m --no-enable-prefix-caching"]\n',
            [("PFX701", 8)],
        ),
        (
            "k8s.yaml",
            'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:latest\n    command: ["/bin/sh", "-c"]\n    args:\n    - |\n      pip install x\n      exec vllm serve m \\\n        --port 1 \\\n        --no-enable-prefix-caching\n',
            [("PFX701", 13)],
        ),
        (
            "k8s.yaml",
            'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: x\n    command:\n    - python3\n    - -m\n    - sglang.launch_server\n    args:\n    - --model-path\n    - m\n    - --disable-radix-cache\n    env:\n    - name: A\n      value: "1"\n',
            [("PFX701", 14)],
        ),
        (
            "k8s.yaml",
            'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: ghcr.io/huggingface/text-generation-inference:3.0\n    args: ["--model-id", "m"]\n    env:\n    - name: PREFIX_CACHING\n      value: "0"\n',
            [("PFX701", 10)],
        ),
        (
            "values.yaml",
            "image:\n  repository: vllm/vllm-openai\n  tag: latest\nextraArgs:\n  - --no-enable-prefix-caching\n",
            [("PFX701", 5)],
        ),
        (
            "values.yaml",
            'routerSpec:\n  routingLogic: roundrobin\nservingEngineSpec:\n  modelSpec:\n  - name: a\n    replicaCount: 2\n    vllmConfig:\n      enablePrefixCaching: false\n      enableChunkedPrefill: false\n      extraArgs: ["--enforce-eager"]\n',
            [("PFX703", 2), ("PFX701", 8), ("PFX705", 9), ("PFX705", 10)],
        ),
        (
            "charts/x/values.yaml",
            'replicaCount: 4\nimage: {repository: vllm/vllm-openai}\nargs: ["--model", "m", "--no-enable-prefix-caching"]\n',
            [("PFX703", 1), ("PFX701", 3)],
        ),
        (
            "templates/deployment.yaml",
            'apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ include "x" . }}\nspec:\n  replicas: {{ .Values.replicas }}\n  template:\n    spec:\n      containers:\n        - name: a\n          image: "{{ .Values.image }}"\n          command: ["vllm", "serve", "{{ .Values.model }}", "--no-enable-prefix-caching"]\n          {{- with .Values.extra }}\n          resources: {}\n          {{- end }}\n',
            [("PFX701", 12)],
        ),
        ("vllm_config.yaml", "model: m\nport: 8000\nno-enable-prefix-caching: true\n", [("PFX701", 3)]),
        (
            "vllm_config.yaml",
            "model: m\nenable-prefix-caching: false\nenforce-eager: true\n",
            [("PFX701", 2), ("PFX705", 3)],
        ),
        (
            "x.service",
            '[Service]\nEnvironment="PREFIX_CACHING=0" "B=2"\nExecStart=/usr/bin/text-generation-launcher --model-id m\n',
            [("PFX701", 2)],
        ),
        (
            "x.service",
            "[Service]\nExecStart=/opt/venv/bin/vllm serve m \\\n    --port 1 \\\n    --no-enable-prefix-caching\nRestart=always\n",
            [("PFX701", 4)],
        ),
        ("x.service", '[Service]\nExecStart=/bin/bash -c "vllm serve m --no-enable-prefix-caching"\n', [("PFX701", 2)]),
        (
            "x.service",
            "[Service]\nExecStart=/usr/bin/docker run --rm vllm/vllm-openai --model m --no-enable-prefix-caching\n",
            [("PFX701", 2)],
        ),
        ("router.sh", "sglang-router --policy random --worker-urls http://a http://b", [("PFX703", 1)]),
        (
            "router.sh",
            "python -m sglang_router.launch_router --pd-disaggregation --prefill http://a 1 --prefill http://b 2 --policy=random",
            [("PFX703", 1)],
        ),
        (
            "router.sh",
            "python -m sglang_router.launch_server --model m --dp-size 4 --router-policy round_robin",
            [("PFX703", 1)],
        ),
        ("router.sh", "python3 -m sglang_router.launch_router --service-discovery --policy random", [("PFX703", 1)]),
        (
            "router.sh",
            'vllm-router --port 1 --static-backends "http://a,http://b" --routing-logic roundrobin',
            [("PFX703", 1)],
        ),
        ("router.sh", "python -m dynamo.frontend --router-mode round-robin", [("PFX703", 1)]),
        ("serve.sh", "vllm serve m --data-parallel-size 8 --enable-prompt-tokens-details", [("PFX703", 1)]),
        (
            "serve.sh",
            "python -m sglang.launch_server --model m --dp 8 --enable-metrics --enable-cache-report",
            [("PFX703", 1)],
        ),
        (
            "serve.sh",
            'vllm serve m --compilation-config \'{"cudagraph_mode": "NONE"}\' --enable-prompt-tokens-details',
            [("PFX705", 1)],
        ),
        ("serve.sh", "vllm serve m -O0 --enable-prompt-tokens-details", [("PFX705", 1)]),
        (
            "serve.sh",
            'if [ -n "$X" ]; then EXTRA="--enforce-eager"; fi\nvllm serve m ${EXTRA} --enable-prompt-tokens-details',
            [("PFX705", 1)],
        ),
        ("serve.sh", "vllm serve $MODEL --port $PORT", [("PFX704", 1)]),
        ("serve", "#!/bin/bash\nvllm serve m --no-enable-prefix-caching", [("PFX701", 2)]),
        ("a.sh", "docker run -e ANTHROPIC_BASE_URL=http://x:1 claude-code -p hi", [("PFX110", 1)]),
        (".claude/settings.json", '{"env": {"ANTHROPIC_BASE_URL": "http://localhost:8000"}}', [("PFX110", 1)]),
        (
            "Dockerfile",
            "FROM vllm/vllm-openai:latest\nENTRYPOINT exec vllm serve m --no-enable-prefix-caching\n",
            [("PFX701", 2)],
        ),
        ("dockerfile", 'from x\ncmd ["vllm","serve","m","--no-enable-prefix-caching"]\n', [("PFX701", 2)]),
        ("Dockerfile", 'FROM x\nCMD ["vllm", "serve", "m", \\\n     "--no-enable-prefix-caching"]\n', [("PFX701", 3)]),
        (
            "Dockerfile",
            'FROM x\nENV VLLM_ARGS="--enforce-eager"\nCMD vllm serve m $VLLM_ARGS\n',
            [("PFX705", 2), ("PFX704", 3)],
        ),
        (
            "Containerfile",
            'FROM x\nRUN x\nENTRYPOINT ["python3","-m","vllm.entrypoints.openai.api_server"]\nCMD ["--model","m","--enable-chunked-prefill=False"]\n',
            [("PFX704", 3), ("PFX705", 4)],
        ),
        (
            "compose.yml",
            "services:\n  r:\n    image: x\n    command: python -m sglang_router.launch_router --policy round_robin --worker-urls http://a:1 http://b:1\n",
            [("PFX703", 4)],
        ),
        (
            "compose.yml",
            "services:\n  r:\n    command:\n      - python\n      - -m\n      - sglang_router.launch_router\n      - --policy\n      - round_robin\n      - --worker-urls\n      - http://a:1\n      - http://b:1\n",
            [("PFX703", 7)],
        ),
        (
            "compose.yml",
            "x-common: &c\n  image: lmsysorg/sglang\nservices:\n  a:\n    <<: *c\n    command: python3 -m sglang.launch_server --model-path m --chunked-prefill-size=-1\n",
            [("PFX704", 6), ("PFX705", 6)],
        ),
        (
            "deploy.yaml",
            'apiVersion: apps/v1\nkind: StatefulSet\nspec:\n  replicas: 3\n  template:\n    spec:\n      containers:\n      - name: s\n        image: lmsysorg/sglang:latest\n        command: ["python3"]\n        args:\n        - "-m"\n        - "sglang.launch_server"\n        - "--model-path=m"\n        - "--enable-metrics"\n        - "--enable-cache-report"\n',
            [("PFX703", 4)],
        ),
        (
            "k.yaml",
            'apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [/bin/bash, -c, "python3 -m sglang.launch_server --model-path m --disable-radix-cache"]\n',
            [("PFX701", 5)],
        ),
        (
            "kserve.yaml",
            "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec:\n  predictor:\n    model:\n      modelFormat: {name: huggingface}\n      args:\n        - --no-enable-prefix-caching\n",
            [("PFX701", 8)],
        ),
        ("start.sh", 'set -e\nCMD="vllm serve m"\nCMD="$CMD --no-enable-prefix-caching"\nexec $CMD\n', [("PFX701", 3)]),
        ("start.sh", 'CMD=(vllm serve m)\nCMD+=(--enforce-eager)\nexec "${CMD[@]}"\n', [("PFX704", 1), ("PFX705", 2)]),
        ("start.sh", 'eval "vllm serve m --no-enable-prefix-caching"\n', [("PFX701", 1)]),
        ("start.sh", "vllm serve m --port 8000 `# comment` --enforce-eager", [("PFX704", 1), ("PFX705", 1)]),
        ("start.sh", 'tmux new -d "vllm serve m --enforce-eager"', [("PFX704", 1), ("PFX705", 1)]),
        (
            "start.sh",
            "CUDA_VISIBLE_DEVICES=0 python -m vllm.entrypoints.openai.api_server \\\n\t--model m \\\n\t--swap-space 4\\\n\t--disable-log-stats&",
            [("PFX704", 1), ("PFX704", 4)],
        ),
        ("start.sh", "uv run vllm serve m --no-enable-prefix-caching", [("PFX701", 1)]),
        ("start.sh", "uvx vllm serve m --no-enable-prefix-caching", [("PFX701", 1)]),
        ("start.sh", "srun --gpus 8 python -m sglang.launch_server --model m --disable-radix-cache", [("PFX701", 1)]),
        ("start.sh", 'ssh host "vllm serve m --no-enable-prefix-caching"', [("PFX701", 1)]),
        ("start.sh", "poetry run vllm serve m --enforce-eager; accelerate launch x", [("PFX704", 1), ("PFX705", 1)]),
        ("start.sh", "python3 -m sglang.launch_server --model-path m --enable-cache-report", [("PFX704", 1)]),
        ("start.sh", "sglang serve --model-path m", [("PFX704", 1)]),
        (
            "start.sh",
            "python -m sglang.launch_server --model-path m --config c.yaml --disable-cuda-graph",
            [("PFX705", 1)],
        ),
        ("start.bash", "vllm serve m\r\n", [("PFX704", 1)]),
        (
            "vllm.service",
            "[Unit]\nDescription=x\n[Service]\nEnvironment=LMCACHE_REMOTE_URL=redis://x\nEnvironment=A=b\nExecStart=vllm serve m --prefix-caching-hash-algo builtin --enable-prompt-tokens-details\n",
            [("PFX701", 6)],
        ),
        (
            "vllm.container",
            "[Container]\nImage=docker.io/vllm/vllm-openai:latest\nExec=--model m --no-enable-prefix-caching\n",
            [("PFX701", 3)],
        ),
        ("Makefile", "serve:\n\tvllm serve m --no-enable-prefix-caching\n", [("PFX701", 2)]),
        ("a.sh", "ssh host bash -s <<EOF\nvllm serve m --no-enable-prefix-caching\nEOF\n", [("PFX701", 2)]),
        ("a.sh", "ssh host <<'EOF'\nvllm serve m --no-enable-prefix-caching\nEOF\n", [("PFX701", 2)]),
        ("a.sh", "cat > run.sh <<EOF\nvllm serve m --no-enable-prefix-caching\nEOF\n", [("PFX701", 2)]),
        (
            "a.sh",
            "cat <<-EOF | sudo tee -a /etc/systemd/system/v.service\n\t[Service]\n\tExecStart=vllm serve m --no-enable-prefix-caching\n\tEOF\n",
            [("PFX701", 3)],
        ),
        (
            "a.sh",
            'cat > Dockerfile <<\'E\'\nFROM vllm/vllm-openai\nCMD ["--model", "m", "--no-enable-prefix-caching"]\nE\n',
            [("PFX701", 3)],
        ),
        (
            "a.sh",
            "kubectl apply -f - <<E\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai\n    args: [--no-enable-prefix-caching]\nE\nvllm serve m --disable-radix-cache=1 --no-enable-prefix-caching\n",
            [("PFX701", 6), ("PFX701", 8)],
        ),
        (
            "a.sh",
            "cat > a.md <<A; cat > b.sh <<B\nvllm serve m --no-enable-prefix-caching\nA\nvllm serve m --no-enable-prefix-caching\nB\n",
            [("PFX701", 4)],
        ),
        ("a.sh", "cat > l.env <<A\nLLAMA_ARG_CACHE_PROMPT=0\nA\n", []),
        (".env", "MODEL=m\nLLAMA_ARG_CACHE_PROMPT=0\n", [("PFX701", 2)]),
        (".env.production", "export LLAMA_ARG_CACHE_PROMPT=false\n", [("PFX701", 1)]),
        ("deploy/vllm.env", '# flags\nARGS="--model m --no-enable-prefix-caching"\n', [("PFX701", 2)]),
    ],
)
def test_faults_are_found_however_the_start_is_written(name, text, expected):
    assert [(code, line) for code, line, _ in found(name, text)] == expected


REPORT = " --enable-prompt-tokens-details"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("serve.sh", "vllm serve m --enable-prefix-caching" + REPORT),
        ("serve.sh", "vllm serve m --no-enable-prefix-caching=false" + REPORT),
        ("serve.sh", "vllm bench serve --model m"),
        ("serve.sh", "pip install vllm && echo vllm serve m --enforce-eager"),
        ("serve.sh", "cat <<EOF\nvllm serve m --enforce-eager\nEOF\necho"),
        ("serve.sh", "cat <<-'EOF' > x\n\tvllm serve m --enforce-eager\n\tEOF\n"),
        ("serve.sh", "cat > notes.md <<EOF\nvllm serve m --enforce-eager\nEOF\n"),
        ("serve.sh", "kubectl apply -f - <<EOF\n{{ not: yaml\nEOF\n"),
        ("serve.sh", "bash <<EOF\nbash <<E2\nE2\n"),
        ("serve.sh", "cat > x.sh <<"),
        (".env", "LLAMA_ARG_CACHE_PROMPT=1\nPREFIX_CACHING=1\nARGS='--verbose'\nBROKEN='\n"),
        (".env", "TOKEN=x\n"),
        ("serve.sh", 'vllm serve m "$@"'),
        ("serve.sh", "vllm serve m $EXTRA_ARGS"),
        ("serve.sh", 'vllm serve m "${VLLM_FLAGS[@]}"'),
        ("serve.sh", "vllm serve --config c.yaml"),
        ("serve.sh", "pkill -f 'vllm serve'; grep -- --disable-radix-cache log"),
        ("serve.sh", "# vllm serve m --enforce-eager\n:"),
        ("serve.sh", "uv pip install vllm serve --enforce-eager"),
        (".env", "PREFIX_CACHING=0"),
        ("serve.sh", "vllm serve m --data-parallel-size 1" + REPORT),
        ("serve.sh", "vllm serve m --data-parallel-size 8 --data-parallel-external-lb" + REPORT),
        ("serve.sh", "LMCACHE_REMOTE_URL=a PYTHONHASHSEED=0 vllm serve m --prefix-caching-hash-algo builtin" + REPORT),
        ("serve.sh", "vllm serve m --prefix-caching-hash-algo builtin" + REPORT),
        ("serve.sh", "vllm serve m --enforce-eager" + REPORT + "  # 3 % slower, saves 4 GiB"),
        ("router.sh", "python -m sglang_router.launch_router --worker-urls http://a http://b"),
        ("router.sh", "python -m sglang_router.launch_router --policy random --worker-urls http://a"),
        ("router.sh", "python -m sglang_router.launch_router --policy consistent_hashing --worker-urls http://a http://b"),
        ("router.sh", "vllm-router --static-backends http://a,http://b --routing-logic session --session-key x"),
        ("router.sh", "vllm-router --static-backends http://a,http://b --routing-logic prefixaware"),
        ("router.sh", "python -m dynamo.frontend --router-mode kv"),
        ("agent.sh", "claude -p hi"),
        ("agent.sh", "ANTHROPIC_BASE_URL=https://api.anthropic.com claude -p hi"),
        ("agent.sh", "ANTHROPIC_BASE_URL=http://x CLAUDE_CODE_ATTRIBUTION_HEADER=0 claude -p hi"),
        ("app.sh", "ANTHROPIC_BASE_URL=http://x python app.py"),
        (".claude/settings.json", json.dumps({"env": {"CLAUDE_CODE_ATTRIBUTION_HEADER": "0", "ANTHROPIC_BASE_URL": "http://x"}})),
        ("Dockerfile", "FROM vllm/vllm-openai\nRUN pip install x\n"),
        ("Dockerfile", "FROM a\nCMD vllm serve m --enforce-eager\nFROM b\n".replace("CMD", "RUN")),
        ("README.md", "vllm serve m --enforce-eager"),
        ("prompts.yaml", "model: claude-4\nsystem_prompt: You speak of vllm serve and --enforce-eager.\n"),
        ("k8s.yaml", "kind: Deployment\nspec:\n  replicas: 1\n  containers:\n  - image: vllm/vllm-openai\n    args: [--model, m, --enable-prompt-tokens-details]\n"),
        ("k8s.yaml", "kind: Deployment\nspec:\n  replicas: 4\n  containers:\n  - image: nginx\n    args: [--model, m]\n"),
    ],
)  # fmt: skip
def test_what_is_right_or_only_spoken_of_is_silent(name, text):
    assert found(name, text) == []


def test_flags_under_a_condition_of_a_chart_are_left_to_its_values():
    chart = (
        "spec:\n  containers:\n  - command:\n    - vllm\n    - serve\n    {{- if not .Values.cache }}\n"
        "    - --no-enable-prefix-caching\n    {{- else }}\n    - --enable-prefix-caching\n    {{- end }}\n    - --enforce-eager\n"
    )
    assert codes("templates/deployment.yaml", chart) == {"PFX705"}
    assert codes("templates/deployment.yaml", chart.replace("- else", "- end").replace("- if", "- end")) >= {"PFX701"}


def test_a_router_beside_the_replicas_is_judged_instead():
    replicas = "services:\n  a:\n    image: vllm/vllm-openai\n    scale: 3\n    command: --model m --enable-prompt-tokens-details\n"
    router = "python -m sglang_router.launch_router --worker-urls http://a http://b --policy cache_aware"
    assert {f.rule.code for f in run({"up/compose.yaml": replicas}).findings} == {"PFX703"}
    assert run({"up/compose.yaml": replicas, "up/router.sh": router}).findings == ()
    assert run({"up/compose.yaml": replicas, "elsewhere/router.sh": router}).findings != ()


def test_prompts_in_a_file_that_starts_an_engine_are_still_read():
    text = (
        "command: vllm serve m\nsystem_prompt: |\n  Now: {{ current_time }}\n  "
        + "You answer questions about crates. " * 20
    )
    hits = codes("agent.yaml", text)
    assert {"PFX101", "PFX704"} <= hits


def test_messages_say_what_and_why():
    message = run({"serve.sh": "python -m sglang.launch_server --model m --enable-metrics"}).findings[0].message
    assert "`--enable-cache-report`" in message
    assert "--enable-metrics" not in message
    message = (
        run({"r.sh": "sglang-router --policy random --worker-urls http://a http://b http://c"}, ["PFX703"])
        .findings[0]
        .message
    )
    assert "one of 3" in message


def test_starts_survive_the_cache():
    file = SourceFile("serve.sh", b"A=1 vllm serve m --x y -dp 4 # 5 %\n")
    summary = kind_of(file).summarize(file)
    again = decode(file.path, json.loads(json.dumps(encode(summary))))
    assert again == summary
    start = start_of(next(sink for sink in again.sinks if sink.kind == "start"))
    assert (start.program, start.complete) == ("vllm", True)
    assert start.given("-dp").value == "4"
    assert start.given("A").value == "1"
    assert start.given("nothing") is None


@pytest.mark.parametrize(
    ("name", "data", "slug"),
    [
        ("compose.yaml", "services:\n  a: [vllm\n    command: x", "data-syntax"),
        ("serve.sh", b"vllm serve m \xff", "wrong-encoding"),
        ("serve.sh", b"vllm serve m \0", "not-text"),
    ],
)
def test_what_cannot_be_read_is_said(name, data, slug):
    file = SourceFile(name, data if isinstance(data, bytes) else data.encode())
    kind = kind_of(file)
    assert kind.wanted(file)
    assert [problem.slug for problem in kind.summarize(file).diagnostics] == [slug]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "image: &a [*a]\ncommand: vllm serve\n".replace("[*a]", "[x]")),
        ("a.yaml", "a: &a\n  command: vllm serve m\n  b: *a\n"),
        ("a.yaml", "command: vllm\n" + "".join("  " * i + "a:\n" for i in range(300))),
        ("a.yaml", "command: vllm serve m --x {{ if }\n"),
        ("a.yaml", "command: [vllm, serve, 1, null, {a: b}, [c]]\nargs: 5\nenv: text\nenvironment: [1, {name: a}, {name: [b]}]\nreplicas: x\n"),
        ("a.sh", "vllm serve m " + "$(" * 5000),
        ("a.sh", "vllm serve " + "'" * 4999),
        ("a.sh", "bash -c " + '"bash -c ' * 50 + "vllm serve m"),
        ("a.sh", "A=$A$A\n" * 60 + "vllm serve m $A"),
        ("a.sh", 'A="x x"\n' + 'A="$A $A"\n' * 40 + "vllm serve m $A"),
        ("a.sh", "A=(x x)\n" + 'A+=("${A[@]}")\n' * 40 + 'vllm serve m "${A[@]}"'),
        ("a.sh", "vllm serve m\n" * 30_000),
        ("Dockerfile", 'FROM vllm\nCMD ["vllm", "serve"\n'),
        ("Dockerfile", "CMD \\\n" * 2000 + "vllm serve m"),
        ("x.service", "ExecStart=vllm serve \\"),
    ],
)  # fmt: skip
def test_hostile_files_cost_little_and_raise_nothing(name, text):
    begun = time.process_time()
    run({name: text})
    assert time.process_time() - begun < 5


def test_a_script_is_read_up_to_a_limit():
    assert sum(len(command.words) for command in commands(whole("a " * (MAX_WORDS + 500)))) <= MAX_WORDS


def words(text):
    return [[word.text for word in command.words] for command in commands(whole(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a \\\n  b # no\nc", [["a", "b"], ["c"]]),
        ("a && b || c; d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a > out 2>&1 < in b", [["a", "b"]]),
        ("X=1 Y='2 3' a $X", [["a", "$X"]]),
        ('X=1; a $X ${X} "$X-y" ${Z:-w v}', [["a", "1", "1", "1-y", "w", "v"]]),
        ("X='1 2'; a $X \"$X\"", [["a", "1", "2", "1 2"]]),
        ("X=(1 '2 3'); X+=(4); a \"${X[@]}\"", [["a", "1", "2 3", "4"]]),
        ("X=1; X+=2; a $X", [["a", "1", "2"]]),
        ("a $(b c) `d`", [["a", "$", "$"]]),
        ("a <<E\nb\nE\nc", [["a"], ["c"]]),
        ("if a; then b; fi", [["a"], ["b"], ["fi"]]),
        ("a '' b", [["a", "", "b"]]),
        ("export X=1 Y; a $X", [["a", "1"]]),
        ("", []),
    ],
)  # fmt: skip
def test_words_as_a_shell_splits_them(text, expected):
    assert words(text) == expected


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=" \n\t'\"\\$(){}[]|&;<>#=+`ab1é-@*", max_size=60))
def test_any_text_is_read_and_each_word_lies_in_it(text):
    size = len(text.encode())
    for command in commands(whole(text)):
        for word in command.words:
            assert 0 <= word.start <= word.end <= size
            assert len(word.at) == len(word.text)


def test_the_facts_have_dates_sources_and_known_programs():
    facts = servers._facts()
    assert facts["as_of"].year >= 2026
    names = {program.name for program in servers.programs()}
    topics = {rule.params["topic"] for rule in PAGES}
    for fault in facts["fault"]:
        assert set(fault["programs"]) <= names
        assert fault["topic"] in topics
        assert fault["source"]
        assert fault["message"]
    assert all(row["source"] and row["version"] for row in facts["program"])


def test_nothing_heavy_is_imported():
    program = (
        "import sys; from prefixlint.sources import SourceFile, kind_of; f = SourceFile('serve.sh', b'vllm serve m');"
        "kind_of(f).summarize(f);"
        "print([m for m in ('numpy', 'torch', 'transformers', 'tokenizers', 'jinja2', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
