"""Transports of httpx whose streams go on: for `openai.OpenAI(http_client=...)`, Anthropic's client and others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from .resumption import Patience, Resumption, is_stream, wants_stream

CLOSED = "the connection was closed"


def http_client(patience: Patience = Patience(), **options: Any) -> httpx.Client:
    """A client of httpx whose streams go on; `options` are those of `httpx.Client`."""
    return httpx.Client(transport=ResumingTransport(patience=patience), **options)


def async_http_client(patience: Patience = Patience(), **options: Any) -> httpx.AsyncClient:
    """An asynchronous client of httpx whose streams go on; `options` are those of `httpx.AsyncClient`."""
    return httpx.AsyncClient(transport=AsyncResumingTransport(patience=patience), **options)


class ResumingTransport(httpx.BaseTransport):
    """Opens streams as resumable ones and continues them after a cut. A stream that is closed before its end is cancelled."""

    def __init__(self, inner: httpx.BaseTransport | None = None, patience: Patience = Patience()) -> None:
        self._inner, self._patience = inner or httpx.HTTPTransport(), patience

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        if wants_stream(request):
            request.headers.setdefault("x-stream-resumable", "1")
        response = self._inner.handle_request(request)
        if is_stream(response):
            response.stream = _Body(self._inner, Resumption(request, response, self._patience), response.stream)
        return response

    def close(self) -> None:
        self._inner.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, inner: httpx.BaseTransport, resumption: Resumption, stream: Any) -> None:
        self._inner, self._resumption, self._stream = inner, resumption, stream

    def __iter__(self) -> Iterator[bytes]:
        resumption = self._resumption
        while not resumption.is_over:
            why: Exception | str = CLOSED
            try:
                for data in self._stream:
                    if given := resumption.feed(data):
                        yield given
                    if resumption.is_over:
                        return
            except httpx.TransportError as error:
                why = error
            pause: float | None = resumption.cut(why)
            while pause is not None:
                self._stream.close()
                time.sleep(pause)
                pause = self._connect()
        if rest := resumption.rest():
            yield rest

    def _connect(self) -> float | None:
        try:
            response = self._inner.handle_request(self._resumption.request())
        except httpx.TransportError as error:
            return self._resumption.cut(error)
        self._stream = response.stream
        return self._resumption.resumed(response)

    def close(self) -> None:
        self._stream.close()
        if request := self._resumption.cancellation():
            with contextlib.suppress(httpx.TransportError):
                self._inner.handle_request(request).close()


class AsyncResumingTransport(httpx.AsyncBaseTransport):
    """The asynchronous form of `ResumingTransport`."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None, patience: Patience = Patience()) -> None:
        self._inner, self._patience = inner or httpx.AsyncHTTPTransport(), patience

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        if wants_stream(request):
            request.headers.setdefault("x-stream-resumable", "1")
        response = await self._inner.handle_async_request(request)
        if is_stream(response):
            response.stream = _AsyncBody(self._inner, Resumption(request, response, self._patience), response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _AsyncBody(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncBaseTransport, resumption: Resumption, stream: Any) -> None:
        self._inner, self._resumption, self._stream = inner, resumption, stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        resumption = self._resumption
        while not resumption.is_over:
            why: Exception | str = CLOSED
            try:
                async for data in self._stream:
                    if given := resumption.feed(data):
                        yield given
                    if resumption.is_over:
                        return
            except httpx.TransportError as error:
                why = error
            pause: float | None = resumption.cut(why)
            while pause is not None:
                await self._stream.aclose()
                await asyncio.sleep(pause)
                pause = await self._connect()
        if rest := resumption.rest():
            yield rest

    async def _connect(self) -> float | None:
        try:
            response = await self._inner.handle_async_request(self._resumption.request())
        except httpx.TransportError as error:
            return self._resumption.cut(error)
        self._stream = response.stream
        return self._resumption.resumed(response)

    async def aclose(self) -> None:
        await self._stream.aclose()
        if request := self._resumption.cancellation():
            with contextlib.suppress(httpx.TransportError):
                await (await self._inner.handle_async_request(request)).aclose()
