"""An engine without a model: SGLang's HTTP API over a prefix cache that is right, with the faults that a test asks for.

Words are tokens. In a test, `FakeEngine()` is a server in this process; as a program it is one that `verify` can start:
`python fakeengine.py --port N [--fault NAME]`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

if __package__:
    from .fakeserver import CLOSE, HANG, STREAM, Answer, FakeServer, chunk, events, reply
else:
    sys.path.insert(0, str(Path(__file__).parent))
    from fakeserver import CLOSE, HANG, STREAM, Answer, FakeServer, chunk, events, reply

FAULTS = ("dies", "hangs", "busy", "fails", "garbage", "denies")


class FakeEngine(FakeServer):
    """SGLang, as far as `verify` asks it; `page` is its page size, `reports` whether it tells cached tokens.

    `fault` happens at each request from the `after`-th on, and `times` times. `seconds` is the time to a first token
    without hits, of which each cached token takes its share away. `shift` makes it count that many tokens too many.
    """

    def __init__(
        self,
        *,
        page: int = 1,
        reports: bool = True,
        fault: str | None = None,
        after: int = 0,
        times: int = 1 << 30,
        seconds: float = 0.0,
        shift: int = 0,
        flushes: str = "yes",
        owner: str = "sglang",
        context: int | None = None,
        capacity: int | None = None,
        kind: str = "sglang",
    ) -> None:
        super().__init__(self._respond)
        self.page, self.reports, self.fault, self.after, self.times = page, reports, fault, after, times
        self.seconds, self.shift, self.flushes, self.owner, self.context = seconds, shift, flushes, owner, context
        self.capacity = capacity
        self.kind = kind
        self.lock = threading.Lock()
        self.cache: dict[str, list[list[int]]] = {}
        self.bodies: list[dict] = []
        self.prompts: list[list[int]] = []
        self.flushed = 0
        self.asked = 0
        self.prompt_tokens = self.cached_tokens = 0
        self.on_request = lambda: None

    def _respond(self, method: str, path: str, body: bytes) -> Answer:
        if path == "/health":
            return reply(200)
        if path == "/v1/models":
            model = {"id": "toy", "object": "model", "owned_by": self.owner, "max_model_len": self.context}
            return reply(200, {"object": "list", "data": [model]})
        if path == "/server_info" and self.kind == "sglang":
            info = {"version": "0.0.0", "page_size": self.page, "enable_metrics": True, "disable_radix_cache": False}
            return reply(200, info | {"enable_cache_report": self.reports, "max_total_num_tokens": self.capacity})
        if path == "/metrics":
            return reply(200, self._metrics().encode(), kind="text/plain")
        if path == "/flush_cache":
            return self._flush()
        if path == "/tokenize":
            return reply(200, {"tokens": ids_of(json.loads(body)["messages"], json.loads(body).get("tools"))})
        if path in ("/v1/chat/completions", "/generate"):
            return self._generate(path, json.loads(body))
        return reply(404, {"error": "nothing here"})

    def _flush(self) -> bytes:
        if self.flushes == "no":
            return reply(400, b"Flush cache failed.", kind="text/plain")
        self.flushed += 1
        if self.flushes == "yes":
            self.cache.clear()
        return reply(200, b"Cache flushed.", kind="text/plain")

    def _generate(self, path: str, body: dict) -> Answer:
        with self.lock:
            self.asked += 1
            self.bodies.append(body)
            faulty = self.fault is not None and self.after < self.asked <= self.after + self.times
        self.on_request()
        if faulty:
            return self._broken()
        ids = body["input_ids"] if path == "/generate" else ids_of(body["messages"], body.get("tools"))
        if self.context is not None and len(ids) + 1 > self.context:
            return reply(400, {"error": {"message": "longer than the context", "code": 400}})
        wanted = body.get("max_tokens") or body.get("sampling_params", {}).get("max_new_tokens", 1)
        output = [zlib.crc32(b"word%d" % n) for n in range(wanted)]
        with self.lock:
            self.prompts.append(ids)
            hit = self._hit(str(body.get("extra_key")), ids)
        if self.seconds:
            time.sleep(self.seconds * (1 - hit / len(ids)))
        with self.lock:
            self.cache.setdefault(str(body.get("extra_key")), []).append(ids + output[:-1])
            self.prompt_tokens += len(ids)
            self.cached_tokens += hit
        return self._told(path, ids, hit, output)

    def _hit(self, key: str, ids: list[int]) -> int:
        best = 0
        for known in self.cache.get(key, ()):
            length = 0
            for a, b in zip(known, ids, strict=False):
                if a != b:
                    break
                length += 1
            best = max(best, length)
        return min(best, len(ids) - 1) // self.page * self.page

    def _told(self, path: str, ids: list[int], hit: int, output: list[int]) -> list[bytes]:
        text = " ".join(f"word{n}" for n in range(len(output)))
        count = len(ids) + self.shift
        if path == "/generate":
            meta = {"prompt_tokens": count, "cached_tokens": hit, "completion_tokens": len(output)}
            meta |= {"queue_time": 0.001, "forward_entry_time": 1.0, "prefill_finished_time": 1.0 + self.seconds}
            chunks = [{"text": text, "output_ids": output, "meta_info": meta | {"finish_reason": {"type": "length"}}}]
        else:
            usage = {"prompt_tokens": count, "completion_tokens": len(output), "total_tokens": count + len(output)}
            usage["prompt_tokens_details"] = {"cached_tokens": hit} if self.reports else None
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": "length"}
            chunks = [{"choices": [choice]}, {"choices": [], "usage": usage}]
        return [STREAM, *(chunk(events(one, done=False)) for one in chunks), chunk(events()), b"0\r\n\r\n"]

    def _broken(self) -> Answer:
        if self.fault == "dies":
            return CLOSE
        if self.fault == "hangs":
            return HANG
        if self.fault == "busy":
            return reply(429, {"error": {"message": "too many requests"}}, "Retry-After: 0")
        if self.fault == "denies":
            return reply(401, {"error": {"message": "no token"}})
        if self.fault == "garbage":
            return STREAM + chunk(b"data: {broken\n\nnonsense \xff\xfe\n\n") + b"zz\r\nthis is no chunk"
        return reply(500, {"error": {"message": "it broke"}})

    def _metrics(self) -> str:
        lines = [
            "# TYPE sglang:prompt_tokens_total counter",
            f"sglang:prompt_tokens_total {self.prompt_tokens}",
            "# TYPE sglang:cached_tokens_total counter",
            f'sglang:cached_tokens_total{{cache_source="device"}} {self.cached_tokens}',
            "# TYPE sglang:num_queue_reqs gauge",
            "sglang:num_queue_reqs 0",
        ]
        return "\n".join(lines) + "\n"


def ids_of(messages: list[dict], tools: list[dict] | None = None) -> list[int]:
    """Render a conversation, and give a token for each word."""
    words = json.dumps(tools).split(" ") if tools else []
    for message in messages:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
        words += [f"<|{message['role']}|>", *text.split(" "), "<|end|>"]
    return [zlib.crc32(word.encode("utf-8", "replace")) for word in [*words, "<|assistant|>"]]


def main() -> None:
    """Serve as a program; with `--child`, a child that would outlive it is started too, and its id printed."""
    options = argparse.ArgumentParser()
    options.add_argument("--page", type=int, default=1)
    options.add_argument("--seconds", type=float, default=0.0)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--fault")
    options.add_argument("--after", type=int, default=0)
    options.add_argument("--child")
    options.add_argument("--stubborn", action="store_true", help="take no SIGTERM")
    options.add_argument("--pid")
    given = options.parse_args()
    if given.pid:
        Path(given.pid).write_text(str(os.getpid()))
    if given.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if given.child:
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        Path(given.child).write_text(str(child.pid))
    if given.fault == "memory":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", flush=True)
        raise SystemExit(1)
    if given.fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if given.fault == "port":
        print("OSError: [Errno 98] Address already in use", flush=True)
        raise SystemExit(1)
    if given.fault == "silent":
        print("loading weights", flush=True)
        time.sleep(600)
    fault = given.fault if given.fault in FAULTS else None
    engine = FakeEngine(fault=fault, after=given.after, page=given.page, seconds=given.seconds)
    engine._listener.close()
    import socket

    engine._listener = socket.create_server(("127.0.0.1", given.port))
    if given.fault == "crash":

        def crash() -> None:
            if engine.asked > given.after:
                print("Scheduler hit an exception: RuntimeError: boom", flush=True)
                os._exit(3)

        engine.on_request = crash
    print("ready to roll", flush=True)
    with engine:
        threading.Event().wait()


if __name__ == "__main__":
    main()
