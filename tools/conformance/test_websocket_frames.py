"""WebSockets as bytes: frames, fragments, text, closing and opening handshakes, as RFC 6455 asks of a server.

Run by `cargo xtask conformance`, which sets `TEST_API_BASE_URL`. Autobahn's suite (`cargo xtask conformance autobahn`) needs a server that
sends each message back; these cases are of the same kinds, at the endpoint itself.
"""

import json
import os
import socket
import struct
import urllib.parse

import pytest

ADDRESS = urllib.parse.urlsplit(os.environ["TEST_API_BASE_URL"])
PATH = "/v1/realtime/streams"
WAIT_S = 20
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x01\x02\x03\x04"
FIELDS = {
    "Host": ADDRESS.netloc,
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}
# What the server makes of the key above: the example of RFC 6455, 1.3.
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
MESSAGE = '{"type":"pause","stream":"é€😀","request":"r"}'.encode()


def frame(opcode, payload=b"", final=True, reserved=0, mask=MASK, size=None):
    """A frame of a client; `size` may lie."""
    size = len(payload) if size is None else size
    kind = (0x80 if final else 0) | reserved << 4 | opcode
    masked = 0x80 if mask else 0
    if size < 126:
        head = struct.pack("!BB", kind, masked | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", kind, masked | 126, size)
    else:
        head = struct.pack("!BBQ", kind, masked | 127, size)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if mask else head + payload


def closing(code, reason=b""):
    return frame(CLOSE, struct.pack("!H", code) + reason)


class Connection:
    """A connection whose opening handshake was sent."""

    def __init__(self, fields=FIELDS, method="GET", path=PATH):
        self.socket = socket.create_connection((ADDRESS.hostname, ADDRESS.port), WAIT_S)
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        lines = iter(self.file.readline, b"\r\n")
        self.fields = {name.lower(): value.strip() for name, _, value in (line.decode().partition(":") for line in lines)}

    def read(self):
        """Opcode and payload of the next frame; `None` at the end of the connection."""
        try:
            head = self.file.read(2)
            if len(head) < 2:
                return None
            assert head[0] & 0x70 == 0 and head[1] < 128, f"reserved bits or a mask: {head.hex()}"
            size = head[1]
            if size > 125:
                size = int.from_bytes(self.file.read(2 if size == 126 else 8))
            return head[0] & 15, self.file.read(size)
        except ConnectionResetError:
            return None

    def messages(self, data):
        """The bytes that come back until the connection ends."""
        with self.socket, self.file:
            assert json.loads(self.read()[1])["type"] == "welcome"
            try:
                self.socket.sendall(data)
            except OSError:
                pass  # The end of what was rejected.
            return list(iter(self.read, None))


def exchange(*frames):
    return Connection().messages(b"".join(frames))


def code_of(received):
    """Close code of the last frame; 0 without one."""
    if not received or received[-1][0] != CLOSE or len(received[-1][1]) < 2:
        return 0
    return struct.unpack("!H", received[-1][1][:2])[0]


BAD = {
    "a frame without mask": (frame(TEXT, b"{}", mask=b""), {1002}),
    "a reserved bit": (frame(TEXT, b"{}", reserved=4), {1002}),
    "another reserved bit of a ping": (frame(PING, reserved=1), {1002}),
    "a reserved opcode": (frame(3, b"{}"), {1002}),
    "a reserved opcode of control frames": (frame(11), {1002}),
    "a ping of 126 bytes": (frame(PING, b"x" * 126), {1002}),
    "a ping in two frames": (frame(PING, b"a", final=False), {1002}),
    "a close in two frames": (frame(CLOSE, struct.pack("!H", 1000), final=False), {1002}),
    "the rest of a message that did not begin": (frame(CONTINUATION, b"{}"), {1002}),
    "a message within a message": (frame(TEXT, b"{", final=False) + frame(TEXT, b"}"), {1002}),
    "a binary message": (frame(BINARY, b"{}"), {1003}),
    "text that is not UTF-8": (frame(TEXT, b'"\xff"'), {1007}),
    "text that is not UTF-8, in the second part": (frame(TEXT, b'"\xce', final=False) + frame(CONTINUATION, b'\xff"'), {1007}),
    "text with a surrogate": (frame(TEXT, b'"\xed\xa0\x80"'), {1007}),
    "text that ends within a character": (frame(TEXT, b"\xe2\x82"), {1007}),
    "a message of 16 exbibytes": (frame(TEXT, b"", size=(1 << 64) - 1), {1002, 1009}),
    "a message of a tebibyte": (frame(TEXT, b"", size=1 << 40), {1009}),
    "parts without an end": (frame(TEXT, b'"', final=False) + frame(CONTINUATION, b"a" * 60_000, final=False) * 1200, {1009}),
    "a close of one byte": (frame(CLOSE, b"\x03"), {1002}),
    "a close whose reason is not UTF-8": (closing(1000, b"\xff"), {1002, 1007}),
}
# RFC 6455, 7.4: codes that a peer may not send.
CODES = [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]
OPENINGS = {
    "without key": ({"Sec-WebSocket-Key": None}, {400}),
    "with a key that is too short": ({"Sec-WebSocket-Key": "c2hvcnQ="}, {400}),
    "without version": ({"Sec-WebSocket-Version": None}, {400, 426}),
    "of another version": ({"Sec-WebSocket-Version": "12"}, {400, 426}),
    "without upgrade": ({"Upgrade": None, "Connection": "keep-alive"}, {400, 426}),
    "of something else": ({"Upgrade": "h2c"}, {400, 426}),
    "without host": ({"Host": None}, {400}),
    "from a foreign page": ({"Origin": "https://example.com"}, {403}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_frame(name):
    data, codes = BAD[name]
    received = exchange(data)
    assert code_of(received) in codes, received
    assert len(received) == 1, f"more than the close: {received}"


@pytest.mark.parametrize("code", CODES)
def test_reserved_close_code(code):
    assert code_of(exchange(closing(code))) == 1002


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1011, 3000, 4999])
def test_close_is_answered(code):
    received = exchange(closing(code, b"bye"))
    assert [opcode for opcode, _ in received] == [CLOSE] and code_of(received) in (code, 1000)


def test_close_without_code_is_answered():
    assert [opcode for opcode, _ in exchange(frame(CLOSE))] == [CLOSE]


@pytest.mark.parametrize("payload", [b"", b"hello", bytes(range(125))])
def test_ping(payload):
    received = exchange(frame(PING, payload), closing(1000))
    assert received[0] == (PONG, payload) and len(received) == 2


def test_pong_that_nobody_asked_for():
    assert [opcode for opcode, _ in exchange(frame(PONG, b"x"), closing(1000))] == [CLOSE]


def test_nothing_is_answered_after_a_close():
    assert [opcode for opcode, _ in exchange(closing(1000), frame(PING, b"x"), frame(TEXT, b"{}"))] == [CLOSE]


@pytest.mark.parametrize("size", [1, 2, 7, len(MESSAGE)])
def test_message_in_parts(size):
    """A message in parts, cut within characters and with pings between them, is the message."""
    parts = [MESSAGE[at : at + size] for at in range(0, len(MESSAGE), size)]
    frames = [frame(CONTINUATION if at else TEXT, part, final=at == len(parts) - 1) for at, part in enumerate(parts)]
    received = exchange(*(one + frame(PING, b"p") if at % 30 == 0 else one for at, one in enumerate(frames)), closing(1000))
    texts = [json.loads(payload) for opcode, payload in received if opcode == TEXT]
    assert len(texts) == 1 and texts[0]["type"] == "error" and texts[0]["request"] == "r", received


def test_message_byte_by_byte():
    connection = Connection()
    for byte in frame(TEXT, b'{"type":"x","request":"r"}')[:-1]:
        connection.socket.send(bytes([byte]))
    received = connection.messages(frame(TEXT, b'{"type":"x","request":"r"}')[-1:] + closing(1000))
    assert [opcode for opcode, _ in received] == [TEXT, CLOSE] and json.loads(received[0][1])["request"] == "r"


def test_opening():
    connection = Connection()
    assert connection.status == 101 and connection.fields["sec-websocket-accept"] == ACCEPT
    assert connection.fields["upgrade"].lower() == "websocket" and "sec-websocket-extensions" not in connection.fields


@pytest.mark.parametrize("name", OPENINGS)
def test_bad_opening(name):
    changes, statuses = OPENINGS[name]
    fields = {field: value for field, value in (FIELDS | changes).items() if value is not None}
    assert Connection(fields).status in statuses


def test_extensions_are_not_taken():
    assert "sec-websocket-extensions" not in Connection(FIELDS | {"Sec-WebSocket-Extensions": "permessage-deflate"}).fields


def test_opening_with_another_method():
    assert Connection(method="POST").status in (400, 405)
