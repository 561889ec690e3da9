"""Measure the recording proxy: overhead, loss, bytes and memory against a scripted upstream.

    python tests/benchmarks/proxy.py --requests 10000 --concurrency 32

Three processes: the upstream (streams server-sent events over `--duration` ms), the proxy, and this one as the client.
Every other group of requests goes to the upstream directly, so that both kinds meet the same machine. Bodies are
compared both ways: the upstream answers with the hash of the body it got, and with a body that the client can predict.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"


def answer(number: int, events: int) -> list[bytes]:
    """The events that the upstream sends to request `number`."""
    pieces = [
        b'data: {"id":"r%d","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"w%d "}}]}\n\n'
        % (number, i)
        for i in range(events)
    ]
    usage = (
        b'data: {"id":"r%d","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,'
        b'"prompt_tokens_details":{"cached_tokens":%d}}}\n\n' % (number, 1000 + number, events, number)
    )
    return [*pieces, usage, b"data: [DONE]\n\n"]


def question(number: int, size: int) -> bytes:
    """The body of request `number`, about `size` bytes."""
    system = ("You are a careful clerk. " * (size // 25 + 1))[:size]
    messages = [{"role": "system", "content": system}, {"role": "user", "content": f"Question {number}?"}]
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()


class Upstream(asyncio.Protocol):
    """A server as fast as Python's can be: its own cost must not hide the proxy's."""

    def __init__(self, events: int, duration: float) -> None:
        self.events, self.pause = events, duration / max(1, events)
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_lost(self, _error: Exception | None) -> None:
        for task in self.tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, rest = self.data.partition(b"\r\n\r\n")
        if not found:
            return
        headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(headers[b"content-length"])
        if len(rest) < length:
            return
        body, self.data = rest[:length], rest[length:]
        task = asyncio.ensure_future(self.respond(int(headers[b"x-number"]), body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def respond(self, number: int, body: bytes) -> None:
        digest = hashlib.sha256(body).hexdigest().encode()
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Got: "
            + digest
            + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for piece in answer(number, self.events):
            if self.pause:
                await asyncio.sleep(self.pause)
            self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.transport.write(b"0\r\n\r\n")


def run_upstream(port: Any, events: int, duration: float) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: Upstream(events, duration), HOST, 0, backlog=512
        )
        port.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(main())


def run_proxy(pipe: Any, upstream: int, output: str, options: dict[str, Any]) -> None:
    from prefixlint.capture.config import RecordConfig, ServeConfig
    from prefixlint.capture.fingerprint import Fingerprinter
    from prefixlint.capture.proxy import _fast_loop, serve

    salt = b"benchmark"
    maker = Fingerprinter(salt) if options.pop("fingerprint") else None
    record = RecordConfig(output=output, salt=salt, run="b", fingerprinter=maker, **options)

    async def main() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
        totals = await serve(
            ServeConfig(upstream=f"http://{HOST}:{upstream}", record=record, port=0),
            lambda _event: None,
            stop=stop,
            ready=lambda _host, port: pipe.send(port),
        )
        pipe.send(totals)

    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(main())


class Client:
    """One connection that sends one request after the other."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, number: int, body: bytes, expected: bytes) -> tuple[float, float]:
        """Give the seconds to the first piece and to the end; raises AssertionError on any other byte."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(HOST, self.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Number: {number}\r\nContent-Length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        self.writer.write(head.encode() + body)
        answer_head = await self.reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in answer_head, answer_head
        assert hashlib.sha256(body).hexdigest().encode() in answer_head
        first, pieces = 0.0, []
        while size := int(await self.reader.readline(), 16):
            pieces.append((await self.reader.readexactly(size + 2))[:-2])
            first = first or time.perf_counter() - started
        await self.reader.readline()
        total = time.perf_counter() - started
        assert b"".join(pieces) == expected
        return first, total

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


async def group(port: int, numbers: range, arguments: argparse.Namespace) -> list[tuple[float, float]]:
    """Send requests at a fixed concurrency."""
    waiting = iter(numbers)
    times = []

    async def work() -> None:
        client = Client(port)
        with contextlib.closing(client):
            for number in waiting:
                # Think time of a random length: without it all connections march in step, and one measures the queue
                # that 32 requests of the same instant form, not what the proxy adds to one.
                await asyncio.sleep(random.Random(number).uniform(0, arguments.think / 1000))
                expected = b"".join(answer(number, arguments.events))
                times.append(await client.ask(number, question(number, arguments.size), expected))

    await asyncio.gather(*(work() for _ in range(arguments.concurrency)))
    return times


def resident(pid: int) -> float:
    """Resident memory of a process in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def cpu(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantile(values: list[float], q: float) -> float:
    return statistics.quantiles(values, n=1000)[round(q * 1000) - 1] * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--events", type=int, default=20, help="pieces of a response")
    parser.add_argument("--duration", type=float, default=100.0, help="milliseconds that a response takes")
    parser.add_argument(
        "--think", type=float, default=50.0, help="most milliseconds that a client waits between requests"
    )
    parser.add_argument("--size", type=int, default=4000, help="bytes of a request body")
    parser.add_argument("--group", type=int, default=500, help="requests in a row of one kind")
    parser.add_argument("--with-output", action="store_true")
    parser.add_argument("--redact", action="store_true")
    parser.add_argument("--fingerprint", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(arguments, f"{folder}/log.jsonl"), indent=1))


def measure(arguments: argparse.Namespace, output: str) -> dict[str, Any]:
    """Run both kinds in turn and compare."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    upstream = spawn.Process(
        target=run_upstream, args=(there, arguments.events, arguments.duration / 1000), daemon=True
    )
    upstream.start()
    there.close()
    upstream_port = here.recv()
    options = {name: getattr(arguments, name) for name in ("with_output", "redact", "fingerprint")}
    pipe, proxy_end = spawn.Pipe()
    proxy = spawn.Process(target=run_proxy, args=(proxy_end, upstream_port, output, options), daemon=True)
    proxy.start()
    proxy_end.close()
    proxy_port = pipe.recv()
    direct: list[tuple[float, float]] = []
    relayed: list[tuple[float, float]] = []
    memory = []
    spent = cpu(proxy.pid or 0)
    for start in range(0, arguments.requests, arguments.group):
        numbers = range(start, min(start + arguments.group, arguments.requests))
        direct += asyncio.run(group(upstream_port, numbers, arguments))
        relayed += asyncio.run(group(proxy_port, numbers, arguments))
        memory.append(resident(proxy.pid or 0))
    spent = cpu(proxy.pid or 0) - spent
    pipe.send("stop")
    totals = pipe.recv()
    proxy.join(10)
    upstream.terminate()
    lines = [json.loads(line) for line in Path(output).read_bytes().splitlines()]
    result: dict[str, Any] = {"requests": len(relayed), "concurrency": arguments.concurrency}
    for name, place in (("ttft", 0), ("total", 1)):
        for label, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            a, b = (quantile([times[place] for times in kind], q) for kind in (direct, relayed))
            result[f"{name}_{label}_ms"] = {"direct": round(a, 3), "relayed": round(b, 3), "added": round(b - a, 3)}
    usage = sorted(line["usage"]["cached"] for line in lines)
    result["logged"] = {
        "written": totals.written,
        "lost": totals.lost,
        "complete": usage == list(range(arguments.requests)),
    }
    result["proxy_memory_mib"] = {"after_first_group": round(memory[0], 1), "at_end": round(memory[-1], 1)}
    result["proxy_cpu_us_per_request"] = round(spent / len(relayed) * 1e6)
    result["log_bytes"] = Path(output).stat().st_size
    return result


if __name__ == "__main__":
    main()
