"""A reverse proxy that passes everything through untouched and hands a copy to a recorder.

Bodies are relayed as they come, without decoding: what the client gets is what the upstream sent, compressed or not,
whole or endless. Only the headers of one hop (`Connection`, `Transfer-Encoding` …) and `Host` are made anew.
"""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from prefixlint.capture.config import Event, OnEvent, ServeConfig
from prefixlint.capture.recorder import Recorder, Totals
from prefixlint.errors import PrefixlintError, UsageError

# How long the thread that writes may hold the interpreter while a request waits (seconds; Python's own is 0.005).
_SWITCH_INTERVAL = 0.0002

Ready = Callable[[str, int], object]


def run(config: ServeConfig, on_event: OnEvent, *, ready: Ready | None = None) -> Totals:
    """Serve until SIGINT or SIGTERM, on the fastest event loop there is; gives what was written and lost.

    Raises PrefixlintError before anything is served where the output cannot be written, the address cannot be bound,
    the upstream is no http(s) URL, or the packages of the extra `record` are missing.
    """
    check_upstream(config.upstream)
    _check_packages()

    async def main() -> Totals:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        return await serve(config, on_event, stop=stop, ready=ready)

    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        return runner.run(main())


async def serve(config: ServeConfig, on_event: OnEvent, *, stop: asyncio.Event, ready: Ready | None = None) -> Totals:
    """Serve until `stop` is set. `ready` is called with the host and port once requests are accepted."""
    from prefixlint.capture.relay import ClientConnection
    from prefixlint.capture.upstream import Upstream

    check_upstream(config.upstream)
    recorder = Recorder(config.record, on_event)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        upstream = Upstream(
            config.upstream,
            config.record.body_limit,
            recorder.submit,
            connect_timeout=config.connect_timeout,
            tls=_tls(config),
        )
        listener = await _listen(config, lambda: ClientConnection(upstream))
        host, port = listener.sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        message = f"recording http://{shown}:{port} -> {config.upstream} into {config.record.output}"
        on_event(Event("listening", message))
        if ready is not None:
            ready(host, port)
        await stop.wait()
        listener.close()
        await _drain(upstream.active, config.drain)
        upstream.close()
        await asyncio.sleep(0)
    finally:
        sys.setswitchinterval(usual)
        totals = await asyncio.to_thread(recorder.close)
    return totals


def check_upstream(url: str) -> None:
    """Raise UsageError where the upstream is no http(s) URL."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment:
        raise UsageError(
            f"the upstream must be a URL like http://127.0.0.1:30000, not {url!r}",
            slug="record-upstream",
            hint="give the address of the server that answers the requests with --upstream",
        )


async def _listen(config: ServeConfig, make: Callable[[], asyncio.Protocol]) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(make, config.host, config.port, backlog=1024)
    except OSError as error:
        raise PrefixlintError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror or error}",
            slug="record-listen",
            hint="choose another address with --host and --port",
        ) from error


async def _drain(active: Collection[object], seconds: float) -> None:
    """Let running exchanges end, for a while."""
    deadline = asyncio.get_running_loop().time() + seconds
    while active and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  (once, at the end)
        await asyncio.sleep(0.02)


def _tls(config: ServeConfig) -> ssl.SSLContext | None:
    if not config.upstream.startswith("https:"):
        return None
    context = ssl.create_default_context()
    if not config.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _check_packages() -> None:
    try:
        import httptools  # noqa: F401  (only whether it is there)
    except ImportError as error:
        raise PrefixlintError(
            "the recording proxy needs the package httptools",
            slug="record-extra",
            hint="pip install 'prefixlint[record]'",
        ) from error


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
