"""Events of a stream, for programs without another client."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from .transport import http_client


@dataclass(frozen=True)
class Event:
    """A server-sent event. `id` is the position after it, for `attach(after=...)`; `stream` is the id of its stream."""

    stream: str
    data: str
    name: str | None = None
    id: str | None = None


def stream(url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Iterator[Event]:
    """Opens a stream with a request (`body` has `stream: True`) and reads it to its end; leaving early cancels it."""
    yield from _events("POST", url, json=body, headers=headers)


def attach(server: str, stream_id: str, after: str | None = None, headers: Mapping[str, str] | None = None) -> Iterator[Event]:
    """Reads a stream that exists, from its beginning or after a position; leaving early does not cancel it."""
    url = f"{server.rstrip('/')}/v1/streams/{stream_id}/events"
    yield from _events("GET", url, headers={**(headers or {}), **({} if after is None else {"last-event-id": after})})


def _events(method: str, url: str, **options: Any) -> Iterator[Event]:
    with http_client(timeout=httpx.Timeout(60)) as client, client.stream(method, url, **options) as response:
        if response.is_error:
            response.read()
            raise httpx.HTTPStatusError(f"{response.status_code}: {response.text}", request=response.request, response=response)
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            elif "data" in fields:
                yield Event(response.headers.get("x-stream-id", ""), fields["data"], fields.get("event"), fields.get("id"))
                fields = {}
