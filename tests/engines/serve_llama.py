"""Start llama.cpp's server on the CPU: `serve_llama.py MODEL.gguf PORT [NAME=NUMBER …]`, with xllamacpp's environment.

The names are those of xllamacpp's CommonParams: `n_parallel=1`, `n_ctx=4096`, `cache_ram_mib=0` …
"""

from __future__ import annotations

import signal
import sys

import xllamacpp


def main() -> None:
    model, port, *settings = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.port = int(port)
    params.n_ctx = 32768
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.endpoint_metrics = True
    params.warmup = False
    for name, _, value in (setting.partition("=") for setting in settings):
        setattr(params, name, int(value))
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
