"""A program of its own: llama.cpp's server, as `xllamacpp` carries it, set so that its cache can be predicted.

`python llamaserver.py --model FILE.gguf --port N`. Each slot holds one sequence in memory of its own, nothing is kept
beside them on the host, and one core is left to the client, since llama.cpp's threads wait for one another without
yielding.
"""

from __future__ import annotations

import argparse
import os
import threading
from pathlib import Path


def main() -> None:
    """Serve until the process is ended."""
    options = argparse.ArgumentParser()
    options.add_argument("--model", required=True)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--chat-template", help="a file; else the model's own")
    options.add_argument("--slots", type=int, default=4)
    options.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    options.add_argument("--context", type=int, default=8192, help="tokens of a slot")
    options.add_argument("--host-cache", type=int, default=0, help="MiB")
    given = options.parse_args()

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = given.model
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    params.n_parallel = given.slots
    params.n_ctx = given.context * given.slots
    params.kv_unified = False  # where slots share their memory, one takes it from another
    params.cache_ram_mib = given.host_cache
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.threads
    if given.chat_template:
        params.chat_template = Path(given.chat_template).read_text(encoding="utf-8")
    params.endpoint_metrics = True
    params.ui = False
    server = xllamacpp.Server(params)  # must live as long as it is to answer
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main()
