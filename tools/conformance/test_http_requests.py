"""Requests as bytes, valid and malformed, and what RFC 9110 and RFC 9112 say of each.

Run by `cargo xtask conformance`, which sets `TEST_API_BASE_URL`. A case is a connection of its own: bytes are sent, all responses
are read, and the server must answer the next connection. No case may make the server answer a request that a proxy before
it would have taken for a part of a body (request smuggling): `SMUGGLED` is never answered.
"""

import os
import socket
import urllib.parse

import pytest

ADDRESS = urllib.parse.urlsplit(os.environ["TEST_API_BASE_URL"])
HOST = ADDRESS.netloc.encode()
# How long a response is waited for, and how long another one, which must not come.
WAIT_S, SILENCE_S = 20, 0.05
RESPONSES_MAX = 4
OK, REJECTED = {200}, {400, 404, 405, 411, 413, 414, 417, 421, 431, 501, 505}
SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: " + HOST + b"\r\n\r\n"
COMPLETION = b'{"model":"millrace-mini","prompt":"Once","max_tokens":1}'
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def get(fields=b"", target=b"/health", version=b"HTTP/1.1", method=b"GET", host=b"Host: " + HOST + b"\r\n"):
    return method + b" " + target + b" " + version + b"\r\n" + host + fields + b"\r\n"


def post(fields, body, version=b"HTTP/1.1"):
    return get(fields, b"/v1/completions", version, b"POST") + body


def length(body=COMPLETION):
    return b"Content-Length: %d\r\n" % len(body)


def chunks(body=COMPLETION, size=b"%x", end=b"0\r\n\r\n"):
    return (size % len(body) if b"%" in size else size) + b"\r\n" + body + b"\r\n" + end


# Name: bytes, statuses of the first response, number of responses. `None` among the statuses: closed without one.
VALID = {
    "a GET": (get(), OK, 1),
    "two GETs in one write": (get() * 2, OK, 2),
    "an empty line before the request": (b"\r\n" + get(), OK, 1),
    "a length": (post(length(), COMPLETION), OK, 1),
    "chunks": (post(CHUNKED, chunks()), OK, 1),
    "chunks, and a GET after them": (post(CHUNKED, chunks()) + get(), OK, 2),
    "a body of a GET, and a GET after it": (get(b"Content-Length: 5\r\n") + b"hello" + get(), OK, 2),
    "chunked in capitals": (post(b"Transfer-Encoding: CHUNKED\r\n", chunks()), OK, 1),
    "size of a chunk in capitals, with zeros": (post(CHUNKED, chunks(size=b"000%X")), OK, 1),
    "size of a chunk with a thousand zeros": (post(CHUNKED, chunks(size=b"0" * 1000 + b"%x")), OK | REJECTED, 1),
    "extension of a chunk": (post(CHUNKED, chunks(size=b'%x;a=b;c="d e"')), OK, 1),
    "trailers": (post(CHUNKED, chunks(end=b"0\r\nX-Sum: 1\r\n\r\n")), OK, 1),
    "space around a value": (get(b"X-A: \t b \t\r\n"), OK, 1),
    "an empty value": (get(b"X-A:\r\n"), OK, 1),
    "bytes above 127 in a value": (get(b"X-A: \xe4\xff\r\n"), OK, 1),
    "a target with host": (get(target=b"http://" + HOST + b"/health"), OK, 1),
    "HTTP/1.0 without host": (get(version=b"HTTP/1.0", host=b""), OK, 1),
    "HTTP/1.0 that closes": (get(version=b"HTTP/1.0") * 2, OK, 1),
    "close": (get(b"Connection: close\r\n") * 2, OK, 1),
    "an upgrade to h2c, which may be ignored": (get(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), OK, 1),
    "expectation of a 100": (post(length() + b"Expect: 100-continue\r\n", COMPLETION), {100, 200}, 2),
    "HEAD": (get(method=b"HEAD"), OK, 1),
}
# Framing of which two readers may think differently. RFC 9112, 6.3: an error, and the connection is closed.
FRAMING = {
    "two lengths that differ": post(length() + b"Content-Length: 5\r\n", COMPLETION),
    "two lengths in one field": post(b"Content-Length: 5, 6\r\n", COMPLETION),
    "a length with a sign": post(b"Content-Length: +56\r\n", COMPLETION),
    "a negative length": post(b"Content-Length: -1\r\n", COMPLETION),
    "a hexadecimal length": post(b"Content-Length: 0x38\r\n", COMPLETION),
    "an empty length": post(b"Content-Length: \r\n", COMPLETION),
    "a length of a word": post(b"Content-Length: many\r\n", COMPLETION),
    "a length beyond 64 bits": post(b"Content-Length: 99999999999999999999\r\n", COMPLETION),
    "an unknown coding": post(b"Transfer-Encoding: zipped\r\n", chunks()),
    "chunked before another coding": post(b"Transfer-Encoding: chunked, gzip\r\n", chunks()),
    "a coding with a control character": post(b"Transfer-Encoding: \x0bchunked\r\n", chunks()),
    "a coding with a word attached": post(b"Transfer-Encoding: xchunked\r\n", chunks()),
    "a space before the colon of the coding": post(b"Transfer-Encoding : chunked\r\n", chunks()),
    "a space before the colon of the length": post(b"Content-Length : 56\r\n", COMPLETION),
    "chunks in HTTP/1.0": post(CHUNKED, chunks(), b"HTTP/1.0"),
}
# A size or an end of a chunk that is none.
CHUNKS = {
    "a size that is no number": chunks(size=b"xyz"),
    "an empty size": chunks(size=b""),
    "a negative size": chunks(size=b"-1"),
    "a size with 0x": chunks(size=b"0x%x"),
    "a size with a plus": chunks(size=b"+%x"),
    "a size with a space before it": chunks(size=b" %x"),
    "a size beyond 64 bits": chunks(size=b"1%017x"),
    "a chunk longer than its size": chunks(size=b"%x").replace(b"\r\n0\r\n", b"!!\r\n0\r\n"),
    "a chunk that ends with a line feed alone": chunks().replace(b"}\r\n", b"}\n"),
    "a size that ends with a carriage return alone": chunks().replace(b"\r\n{", b"\r{"),
    "an extension with a line feed": chunks(size=b"%x;a\nb"),
    "an extension of a mebibyte": chunks(size=b"%x;" + b"a" * (1 << 20)),
    "trailers of a mebibyte": chunks(end=b"0\r\nX-A: " + b"a" * (1 << 20) + b"\r\n\r\n"),
}
# RFC 9112, 2.2, 3, 5: lines that a server rejects, or may. `/health` is answered whatever the host is: probes may name none.
HEADS = {
    "no host": get(target=b"/v1/models", host=b""),
    "two hosts": get(b"Host: example.com\r\n", target=b"/v1/models"),
    "a host with a space": get(target=b"/v1/models", host=b"Host: a b\r\n"),
    "a host with a path": get(target=b"/v1/models", host=b"Host: a/b\r\n"),
    "a target with another host": get(target=b"http://example.com/v1/models"),
    "a space before a colon": get(b"X-A : b\r\n"),
    "a field without colon": get(b"X-A\r\n"),
    "a field without name": get(b": b\r\n"),
    "a name with a space": get(b"X A: b\r\n"),
    "a name with brackets": get(b"X(A): b\r\n"),
    "a folded field": get(b"X-A: b\r\n c\r\n"),
    "a space before the first field": b"GET /health HTTP/1.1\r\n Host: " + HOST + b"\r\n\r\n",
    "a NUL in a value": get(b"X-A: b\0c\r\n"),
    "a carriage return in a value": get(b"X-A: b\rc\r\n"),
    "a control character in a name": get(b"X\x01A: b\r\n"),
    "HTTP/0.9": b"GET /health\r\n",
    "HTTP/1.2 in small letters": get(version=b"http/1.1"),
    "HTTP/2.0": get(version=b"HTTP/2.0"),
    "HTTP/9.9": get(version=b"HTTP/9.9"),
    "a version of letters": get(version=b"HTTP/x.y"),
    "no target": b"GET HTTP/1.1\r\nHost: " + HOST + b"\r\n\r\n",
    "two spaces before the target": get(target=b" /health"),
    "a space in the target": get(target=b"/health /x"),
    "a control character in the target": get(target=b"/hea\x01lth"),
    "no slash before the target": get(target=b"health"),
    "a method with brackets": get(method=b"GE(T"),
    "an unknown method": get(method=b"BREW"),
    "a method in small letters": get(method=b"get"),
    "CONNECT": get(method=b"CONNECT", target=b"example.com:443"),
    "a target of a mebibyte": get(target=b"/" + b"a" * (1 << 20)),
    "a field of a mebibyte": get(b"X-A: " + b"a" * (1 << 20) + b"\r\n"),
    "ten thousand fields": get(b"X-A: b\r\n" * 10_000),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a handshake of TLS": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "bytes": bytes(range(256)) * 4,
}
# A body that the server does not want must not become a request.
HIDDEN = {
    "behind a length beside chunks": post(b"Content-Length: 6\r\n" + CHUNKED, b"0\r\n\r\n" + SMUGGLED),
    "behind chunks beside a length": post(CHUNKED + b"Content-Length: %d\r\n" % (5 + len(SMUGGLED)), b"0\r\n\r\n" + SMUGGLED),
    "in the body of an unknown path": get(length(SMUGGLED), b"/v1/nothing", method=b"POST") + SMUGGLED,
    "in the body of a wrong method": get(length(SMUGGLED), b"/v1/completions", method=b"DELETE") + SMUGGLED,
    "in the body of a GET": get(length(SMUGGLED)) + SMUGGLED,
    "in the body of a HEAD": get(length(SMUGGLED), method=b"HEAD") + SMUGGLED,
    "in a chunk": post(CHUNKED, chunks(SMUGGLED)),
    "behind a coding that is hidden by a space": post(b"Content-Length: %d\r\nTransfer-Encoding : chunked\r\n" % (5 + len(SMUGGLED)), b"0\r\n\r\n" + SMUGGLED),
    "behind two codings": post(CHUNKED + b"Transfer-Encoding: identity\r\n" + length(b"0\r\n\r\n" + SMUGGLED), b"0\r\n\r\n" + SMUGGLED),
    "in the trailers": post(CHUNKED, b"0\r\nX-A: b\r\n" + SMUGGLED),
}


class Responses:
    """All responses to bytes that are sent over one connection."""

    def __init__(self, data):
        self.all, self.is_closed, self.pending = [], False, b""
        with socket.create_connection((ADDRESS.hostname, ADDRESS.port), WAIT_S) as self.socket:
            try:
                self.socket.sendall(data)
            except OSError:
                pass  # What was rejected after its beginning is not read to its end.
            is_head = data.startswith(b"HEAD ")
            while len(self.all) < RESPONSES_MAX and (response := self.next(is_head)):
                self.all.append(response)

    def next(self, is_head):
        """Status, fields and body of the next response, if one comes."""
        self.socket.settimeout(SILENCE_S if self.all and self.all[-1][0] >= 200 else WAIT_S)
        while b"\r\n\r\n" not in self.pending:
            if not self.more():
                return None
        self.socket.settimeout(WAIT_S)
        head, _, self.pending = self.pending.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split(" ")[1])
        if is_head or status in (100, 204, 304):
            return status, fields, b""
        if fields.get("transfer-encoding") == "chunked":
            return status, fields, self.until(b"0\r\n\r\n")
        return status, fields, self.take(int(fields.get("content-length", 1 << 30)))

    def take(self, count):
        while len(self.pending) < count and self.more():
            pass
        body, self.pending = self.pending[:count], self.pending[count:]
        return body

    def until(self, end):
        while end not in self.pending and self.more():
            pass
        body, _, self.pending = self.pending.partition(end)
        return body

    def more(self):
        """Reads on; false where nothing comes."""
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        self.is_closed |= not data
        self.pending += data
        return bool(data)

    @property
    def statuses(self):
        return [status for status, _, _ in self.all]


def is_alive():
    return Responses(get(b"Connection: close\r\n")).statuses == [200]


def is_rejected(data):
    """Rejected, in words or by the end of the connection, and nothing after that."""
    got = Responses(data)
    assert set(got.statuses) <= REJECTED and len(got.statuses) <= 1, got.all
    assert got.statuses or got.is_closed, "neither a response nor the end of the connection"
    assert is_alive()
    return got


@pytest.mark.parametrize("name", VALID)
def test_valid(name):
    data, statuses, count = VALID[name]
    got = Responses(data)
    assert set(got.statuses) <= statuses and len(got.statuses) == count, got.all
    assert is_alive()


@pytest.mark.parametrize("name", FRAMING)
def test_framing(name):
    assert is_rejected(FRAMING[name]).is_closed, "the connection goes on"


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks(name):
    assert is_rejected(post(CHUNKED, CHUNKS[name])).is_closed, "the connection goes on"


@pytest.mark.parametrize("name", HEADS)
def test_head(name):
    is_rejected(HEADS[name])


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden(name):
    got = Responses(HIDDEN[name])
    assert not any(b'"data"' in body for _, _, body in got.all), f"the hidden request was answered: {got.statuses}"
    assert got.all or got.is_closed, "neither a response nor the end of the connection"
    assert is_alive()


def test_hidden_request_is_answered_where_it_is_not_hidden():
    assert b'"data"' in Responses(SMUGGLED).all[0][2]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines(ending):
    """RFC 9112, 2.2: a line feed alone may end a line; then it does so everywhere, or nowhere."""
    whole = Responses(get(b"Content-Length: 0\r\n").replace(b"\r\n", ending.encode()))
    assert whole.statuses == [200] or (ending == "\n" and set(whole.statuses) <= REJECTED), whole.all


@pytest.mark.parametrize("both", [b"Content-Length: 6\r\n" + CHUNKED, CHUNKED + b"Content-Length: 6\r\n"])
def test_length_and_chunks(both):
    """RFC 9112, 6.1: rejected, or read as chunks; in both cases the connection is closed after the response."""
    got = Responses(post(both, chunks()) + get())
    assert len(got.statuses) == 1 and set(got.statuses) <= REJECTED | OK, got.all
    assert got.is_closed, "the connection goes on"


def test_body_that_ends_early():
    """RFC 9112, 8: an incomplete request is not answered as if it were complete."""
    with socket.create_connection((ADDRESS.hostname, ADDRESS.port), WAIT_S) as connection:
        connection.sendall(post(b"Content-Length: 1000\r\n", COMPLETION))
        connection.shutdown(socket.SHUT_WR)
        first = connection.recv(1 << 16)
    assert not first or int(first.split(b" ")[1]) in REJECTED, first
    assert is_alive()
