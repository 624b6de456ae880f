"""What a reader of one stream knows, without sockets: events that arrived, the position after them, and the next request."""

from __future__ import annotations

import json
from dataclasses import dataclass

import httpx

# Bytes of an event that has not ended; a longer one is not the server's.
EVENT_BYTES_MAX = 64 << 20
# Reconnection time until the stream names its own (`retry:`), in seconds.
RETRY_S = 0.25
# Names of events that nothing follows. Other ends are learned by asking: a position at the end is answered with 204.
LAST_EVENTS = {b"message_stop", b"response.completed", b"response.incomplete", b"response.failed", b"response.cancelled"}
# Fields of the opening request that do not belong to a request without a body.
OF_THE_BODY = {"content-length", "content-type", "content-encoding", "transfer-encoding", "accept", "last-event-id"}
# Statuses at which a server, or a proxy before it, may answer later.
TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class StreamLost(httpx.ReadError):
    """The stream cannot be continued: the server does not have it any more, or could not be reached for too long."""


@dataclass(frozen=True)
class Patience:
    """How long a stream without a new event is asked for, and the longest pause between two attempts, in seconds."""

    total_s: float = 60.0
    pause_max_s: float = 5.0


def wants_stream(request: httpx.Request) -> bool:
    """Whether a request, whose body was read, opens a stream."""
    if request.method != "POST" or b'"stream"' not in request.content:
        return False
    try:
        body = json.loads(request.content)
    except ValueError:
        return False
    return isinstance(body, dict) and body.get("stream") is True


def is_stream(response: httpx.Response) -> bool:
    """Whether a response is a stream that can be continued."""
    fields = response.headers
    is_plain = fields.get("content-type", "").startswith("text/event-stream") and "content-encoding" not in fields
    return response.status_code == 200 and is_plain and "x-stream-id" in fields


class Resumption:
    """The position of a reader in a stream.

    One token may cause several events, of which the last one has the position (`id:`). Events are given out up to one with
    a position, so that a reader that continues there has each event once.
    """

    def __init__(self, request: httpx.Request, response: httpx.Response, patience: Patience) -> None:
        self.id: str = response.headers["x-stream-id"]
        self.is_over = False
        self._is_opener = request.method == "POST"
        self._cursor: str | None = request.headers.get("last-event-id")
        self._headers = [(k, v) for k, v in request.headers.multi_items() if k.lower() not in OF_THE_BODY]
        self._url, self._extensions, self._patience = request.url, request.extensions, patience
        self._part, self._held = b"", b""
        self._retry_s, self._pause_s, self._waited_s = RETRY_S, 0.0, 0.0

    def feed(self, data: bytes) -> bytes:
        """Takes bytes of the response; returns the whole events that a later connection will not repeat."""
        *blocks, self._part = (self._part + data).split(b"\n\n")
        if len(self._part) > EVENT_BYTES_MAX:
            raise httpx.DecodingError(f"an event of stream {self.id} has more than {EVENT_BYTES_MAX} bytes")
        given = b""
        for block in blocks:
            self._held += block + b"\n\n"
            if self._has_position(block):
                given += self.rest()
        return given

    def rest(self) -> bytes:
        """The events that are held back; at the end of the stream, nothing replaces them."""
        held, self._held = self._held, b""
        return held

    def _has_position(self, block: bytes) -> bool:
        """Reads the fields of an event; whether it has a position, or is the last one."""
        is_placed = False
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            value = value.strip()
            if name == b"id":
                self._cursor, is_placed = value.decode(), True
                self._pause_s = self._waited_s = 0.0
            elif name == b"retry" and value.isdigit():
                self._retry_s = int(value) / 1000
            elif (name == b"data" and value == b"[DONE]") or (name == b"event" and value in LAST_EVENTS):
                self.is_over = True
        return is_placed or self.is_over

    def cut(self, why: Exception | str, retry_after: str = "") -> float:
        """Notes a connection that ended or failed; returns the pause before the next one in seconds, or gives up."""
        self._part = b""
        if self._waited_s >= self._patience.total_s:
            raise StreamLost(f"stream {self.id} has no new event after {self._waited_s:.0f} s of attempts: {why}")
        named_s = float(retry_after) if retry_after.isdigit() else max(self._pause_s * 2, self._retry_s)
        self._pause_s = min(named_s, self._patience.pause_max_s)
        self._waited_s += max(self._pause_s, 0.05)
        return self._pause_s

    def request(self) -> httpx.Request:
        """The request that continues after the last position."""
        headers = [*self._headers, ("accept", "text/event-stream")]
        if self._cursor is not None:
            headers.append(("last-event-id", self._cursor))
        return httpx.Request("GET", self._address("/events"), headers=headers, extensions=self._extensions)

    def resumed(self, response: httpx.Response) -> float | None:
        """Takes the head of the response that continues the stream: a pause before another attempt, or none."""
        if response.status_code in TRANSIENT:
            return self.cut(f"status {response.status_code}", response.headers.get("retry-after", ""))
        if response.status_code not in (200, 204):
            raise StreamLost(f"stream {self.id} cannot be continued after {self._cursor}: status {response.status_code}")
        if response.status_code == 204:
            self.is_over = True
        else:
            self._held = b""
        return None

    def cancellation(self) -> httpx.Request | None:
        """The request that cancels a stream which its opener leaves before the end, once."""
        is_left, self.is_over = self._is_opener and not self.is_over, True
        return httpx.Request("DELETE", self._address(""), headers=self._headers) if is_left else None

    def _address(self, verb: str) -> httpx.URL:
        if not self._is_opener:
            return self._url
        before, is_versioned, _ = self._url.raw_path.decode().partition("/v1/")
        prefix = before if is_versioned else ""
        return self._url.copy_with(raw_path=f"{prefix}/v1/streams/{self.id}{verb}".encode())
