"""A transport for httpx (and httpx2) that records what passes: for the clients of OpenAI and Anthropic.

    from openai import DefaultHttpxClient, OpenAI
    from prefixlint.capture.hooks import open_log
    from prefixlint.capture.httpx import RecordingTransport

    client = OpenAI(http_client=DefaultHttpxClient(transport=RecordingTransport(open_log("log.jsonl"))))

For the asynchronous clients: `AsyncRecordingTransport` and `DefaultAsyncHttpxClient`. Anthropic's client is used in the
same way. `inner` is the transport that does the work, where it is not the default one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Self

from prefixlint.capture.exchange import Body, Exchange
from prefixlint.capture.recorder import Recorder
from prefixlint.errors import PrefixlintError


class RecordingTransport:
    """A transport around another one; what it records is handed over when a response is closed."""

    def __init__(self, recorder: Recorder, inner: Any = None) -> None:
        self._recorder = recorder
        self._inner = inner if inner is not None else _library().HTTPTransport()

    def handle_request(self, request: Any) -> Any:
        """Send a request, and watch its response go by."""
        watch = _Watch(self._recorder, request)
        try:
            response = self._inner.handle_request(request)
        except Exception as error:
            watch.failed(error)
            raise
        watch.answered(response)
        response.stream = _tees(_module_of(response))[0](response.stream, watch)
        return response

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._inner.__exit__(*details)


class AsyncRecordingTransport:
    """The same for asynchronous clients."""

    def __init__(self, recorder: Recorder, inner: Any = None) -> None:
        self._recorder = recorder
        self._inner = inner if inner is not None else _library().AsyncHTTPTransport()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, and watch its response go by."""
        watch = _Watch(self._recorder, request)
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            watch.failed(error)
            raise
        watch.answered(response)
        response.stream = _tees(_module_of(response))[1](response.stream, watch)
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._inner.__aexit__(*details)


class _Watch:
    """One exchange on its way; handed over once, whatever happens."""

    def __init__(self, recorder: Recorder, request: Any) -> None:
        self._recorder = recorder
        self._started = time.perf_counter()
        self._done = False
        self._last = b""
        limit = recorder.body_limit
        self._exchange = Exchange(
            time=time.time(),
            method=request.method,
            target=request.url.raw_path.decode("ascii", "replace"),
            request=Body(limit),
            response=Body(limit),
            request_headers={name.lower(): value for name, value in request.headers.items()},
        )
        content = getattr(request, "_content", None)
        if isinstance(content, bytes):  # uploads that stream have none, and no prompt either
            self._exchange.request.feed(content)

    def answered(self, response: Any) -> None:
        self._exchange.status = response.status_code
        self._exchange.response_headers = {name.lower(): value for name, value in response.headers.items()}

    def piece(self, data: bytes) -> None:
        self._last = data
        self._exchange.arrived(time.perf_counter() - self._started, data)

    def failed(self, error: BaseException) -> None:
        known = self._exchange.status is not None
        self._exchange.outcome = "upstream-broke-off" if known else "upstream-failed"
        self._exchange.error = str(error) or type(error).__name__
        self._hand_over()

    def ended(self) -> None:
        self._hand_over()

    def closed(self) -> None:
        """Note that the client wants no more; to stop reading behind the last event is no breaking off."""
        length = self._exchange.response_headers.get("content-length")
        if not self._done and b"[DONE]" not in self._last and length != str(self._exchange.response.size):
            self._exchange.outcome = "client-gone"
        self._hand_over()

    def _hand_over(self) -> None:
        if not self._done:
            self._done = True
            self._exchange.total = time.perf_counter() - self._started
            self._recorder.submit(self._exchange)


@cache
def _tees(name: str) -> tuple[Any, Any]:
    """Make streams that pass on and watch another; the library insists on its own base classes."""
    library: Any = importlib.import_module(name)

    class Tee(library.SyncByteStream):  # type: ignore[misc]  # the base is known when the program runs
        def __init__(self, stream: Any, watch: _Watch) -> None:
            self._stream, self._watch = stream, watch

        def __iter__(self) -> Iterator[bytes]:
            try:
                for data in self._stream:
                    self._watch.piece(data)
                    yield data
            except Exception as error:
                self._watch.failed(error)
                raise
            self._watch.ended()

        def close(self) -> None:
            self._watch.closed()
            self._stream.close()

    class AsyncTee(library.AsyncByteStream):  # type: ignore[misc]  # as above
        def __init__(self, stream: Any, watch: _Watch) -> None:
            self._stream, self._watch = stream, watch

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for data in self._stream:
                    self._watch.piece(data)
                    yield data
            except Exception as error:
                self._watch.failed(error)
                raise
            self._watch.ended()

        async def aclose(self) -> None:
            self._watch.closed()
            await self._stream.aclose()

    return Tee, AsyncTee


def _module_of(response: Any) -> str:
    """Give the library that a response is from."""
    return type(response).__module__.partition(".")[0]


def _library() -> ModuleType:
    """Give the library that the clients use: httpx2 where it is installed, as the newer ones do."""
    for name in ("httpx2", "httpx"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise PrefixlintError(
        "neither httpx2 nor httpx is installed", slug="record-httpx", hint="pip install httpx2, or give a transport"
    )
