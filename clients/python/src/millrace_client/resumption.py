"""What a reader of one stream knows, without sockets: events that arrived, the position after them, and the next request."""

import contextlib
import json
from collections.abc import Iterator
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


def make_resumable(request: httpx.Request) -> httpx.Request:
    """Asks for a resumable stream where a request, whose body was read, opens a stream."""
    with contextlib.suppress(ValueError):
        body = json.loads(request.content) if request.method == "POST" and b'"stream"' in request.content else None
        if isinstance(body, dict) and body.get("stream") is True:
            request.headers.setdefault("x-stream-resumable", "1")
    return request


def is_stream(response: httpx.Response) -> bool:
    """Whether a response is a stream that can be continued."""
    is_plain = response.headers.get("content-type", "").startswith("text/event-stream") and "content-encoding" not in response.headers
    return response.status_code == 200 and is_plain and "x-stream-id" in response.headers


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
        self._retry_s, self._retry_after, self._waited_s = RETRY_S, "", 0.0
        self._pause_s: float | None = None

    def feed(self, data: bytes) -> bytes:
        """Takes bytes of the response; returns the whole events that a later connection will not repeat."""
        *blocks, self._part = (self._part + data).split(b"\n\n")
        if len(self._part) > EVENT_BYTES_MAX:
            raise httpx.DecodingError(f"an event of stream {self.id} has more than {EVENT_BYTES_MAX} bytes")
        given = b""
        for block in blocks:
            self._held += block + b"\n\n"
            given += self.rest() if self._has_position(block) else b""
        return given

    def rest(self) -> bytes:
        """The events that are held back; at the end of the stream, nothing replaces them."""
        held, self._held = self._held, b""
        return held

    def _has_position(self, block: bytes) -> bool:
        """Reads the fields of an event; whether it has a position, or is the last one."""
        is_placed = False
        for line in block.split(b"\n"):
            name, _, value = map(bytes.strip, line.partition(b":"))
            if name == b"id":
                self._cursor, is_placed = value.decode(), True
                self._pause_s = self._waited_s = 0.0
            elif name == b"retry" and value.isdigit():
                self._retry_s = int(value) / 1000
            elif (name == b"data" and value == b"[DONE]") or (name == b"event" and value in LAST_EVENTS):
                self.is_over = True
        return is_placed or self.is_over

    @contextlib.contextmanager
    def connection(self) -> Iterator[float | None]:
        """Reads one connection, or makes one and reads it: gives the pause before that, in seconds. After too many it gives up."""
        why: Exception | str = "the connection was closed"
        try:
            yield self._pause_s
        except StreamLost:
            raise
        except httpx.TransportError as error:
            why = error
        if self.is_over:
            return
        if self._waited_s >= self._patience.total_s:
            raise StreamLost(f"stream {self.id} has no new event after {self._waited_s:.0f} s of attempts: {why}")
        named_s = float(self._retry_after) if self._retry_after.isdigit() else max((self._pause_s or 0) * 2, self._retry_s)
        self._pause_s = min(named_s, self._patience.pause_max_s)
        self._waited_s += max(self._pause_s, 0.05)
        self._part, self._retry_after = b"", ""

    def request(self) -> httpx.Request:
        """The request that continues after the last position."""
        position = [] if self._cursor is None else [("last-event-id", self._cursor)]
        headers = [*self._headers, ("accept", "text/event-stream"), *position]
        return httpx.Request("GET", self._address("/events"), headers=headers, extensions=self._extensions)

    def resumed(self, response: httpx.Response) -> None:
        """Takes the head of the response that continues the stream; an error where it does not."""
        if response.status_code in TRANSIENT:
            self._retry_after = response.headers.get("retry-after", "")
            raise httpx.ReadError(f"status {response.status_code}")
        if response.status_code not in (200, 204):
            raise StreamLost(f"stream {self.id} cannot be continued after {self._cursor}: status {response.status_code}")
        self.is_over = response.status_code == 204
        self._held = self._held if self.is_over else b""

    def cancellation(self) -> httpx.Request | None:
        """The request that cancels a stream which its opener leaves before the end, once."""
        is_left, self.is_over = self._is_opener and not self.is_over, True
        return httpx.Request("DELETE", self._address(""), headers=self._headers) if is_left else None

    def _address(self, verb: str) -> httpx.URL:
        if not self._is_opener:
            return self._url
        before, version, _ = self._url.raw_path.decode().partition("/v1/")
        return self._url.copy_with(raw_path=f"{before if version else ''}/v1/streams/{self.id}{verb}".encode())
