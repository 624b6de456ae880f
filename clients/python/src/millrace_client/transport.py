"""Transports of httpx whose streams go on: for `openai.OpenAI(http_client=...)`, Anthropic's client and others."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from .resumption import Patience, Resumption, is_stream, make_resumable


def http_client(patience: Patience = Patience(), **options: Any) -> httpx.Client:
    """A client of httpx whose streams go on; `options` are those of `httpx.Client`."""
    return httpx.Client(transport=ResumingTransport(patience=patience), **options)


def async_http_client(patience: Patience = Patience(), **options: Any) -> httpx.AsyncClient:
    """An asynchronous client of httpx whose streams go on; `options` are those of `httpx.AsyncClient`."""
    return httpx.AsyncClient(transport=AsyncResumingTransport(patience=patience), **options)


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The events of a stream over one connection after the other. `inner` sends the requests."""

    def __init__(self, inner: Any, resumption: Resumption, stream: Any) -> None:
        self._inner, self._resumption, self._stream = inner, resumption, stream

    def __iter__(self) -> Iterator[bytes]:
        while not self._resumption.is_over:
            with self._resumption.connection() as pause_s:
                if pause_s is not None:
                    self._stream.close()
                    time.sleep(pause_s)
                    response = self._inner.handle_request(self._resumption.request())
                    self._stream = response.stream
                    self._resumption.resumed(response)
                for data in self._stream:
                    yield self._resumption.feed(data)
                    if self._resumption.is_over:
                        break
        yield self._resumption.rest()

    def close(self) -> None:
        self._stream.close()
        if request := self._resumption.cancellation():
            with contextlib.suppress(httpx.TransportError):
                self._inner.handle_request(request).close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._resumption.is_over:
            with self._resumption.connection() as pause_s:
                if pause_s is not None:
                    await self._stream.aclose()
                    await asyncio.sleep(pause_s)
                    response = await self._inner.handle_async_request(self._resumption.request())
                    self._stream = response.stream
                    self._resumption.resumed(response)
                async for data in self._stream:
                    yield self._resumption.feed(data)
                    if self._resumption.is_over:
                        break
        yield self._resumption.rest()

    async def aclose(self) -> None:
        await self._stream.aclose()
        if request := self._resumption.cancellation():
            with contextlib.suppress(httpx.TransportError):
                await (await self._inner.handle_async_request(request)).aclose()


class ResumingTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Opens streams as resumable ones and continues them after a cut. A stream that is closed before its end is cancelled."""

    _plain: Any = httpx.HTTPTransport

    def __init__(self, inner: Any = None, patience: Patience = Patience()) -> None:
        self._inner, self._patience = inner or self._plain(), patience

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._continued(request, self._inner.handle_request(make_resumable(request)))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        return self._continued(request, await self._inner.handle_async_request(make_resumable(request)))

    def _continued(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if is_stream(response):
            response.stream = _Body(self._inner, Resumption(request, response, self._patience), response.stream)
        return response

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


class AsyncResumingTransport(ResumingTransport):
    """The asynchronous form of `ResumingTransport`."""

    _plain = httpx.AsyncHTTPTransport
