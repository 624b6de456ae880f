//! Methods, versions, and the line they stand in.

use super::Want::{Closed, Cut, Ended, Kept};
use super::{Vector, row};

pub(super) const ROWS: &[Vector] = &[
    row(
        "plain",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row("HTTP/0.9", b"GET /health\r\n\r\n", Closed(400)),
    row("HTTP/0.9 with LF", b"GET /health\n\n", Closed(400)),
    row(
        "version 0.9",
        b"GET /health HTTP/0.9\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version 1.2",
        b"GET /health HTTP/1.2\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version 1.10",
        b"GET /health HTTP/1.10\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version 2.0",
        b"GET /health HTTP/2.0\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version 3",
        b"GET /health HTTP/3\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version without a dot",
        b"GET /health HTTP/11\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version without a minor",
        b"GET /health HTTP/1.\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version in lower case",
        b"GET /health http/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "version of another protocol",
        b"GET /health ICAP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "letters after the version",
        b"GET /health HTTP/1.1x\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a space within the version",
        b"GET /health HTTP /1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a space after the version",
        b"GET /health HTTP/1.1 \r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "preface of HTTP/2",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        Cut,
    ),
    row(
        "a TLS client hello",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        Closed(400),
    ),
    row("SSH", b"SSH-2.0-OpenSSH_9.6\r\n", Closed(400)),
    row("SMTP", b"EHLO localhost\r\n", Closed(400)),
    row("nothing", b"", Ended(&[])),
    row("half a line", b"GET /hea", Ended(&[])),
    row("a line and no end", b"GET /health HTTP/1.1\r\n", Ended(&[])),
    row(
        "an empty line before",
        b"\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "empty lines before",
        b"\r\n\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "empty lines of LF before",
        b"\n\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "a bare CR before",
        b"\rGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a space before",
        b" GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "NUL before",
        b"\0GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a byte order mark before",
        b"\xef\xbb\xbfGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "lines that end with LF",
        b"GET /health HTTP/1.1\nhost: localhost\n\n",
        Kept(200),
    ),
    row(
        "lines that end with CR",
        b"GET /health HTTP/1.1\rhost: localhost\r\r",
        Closed(400),
    ),
    row(
        "CR CR LF",
        b"GET /health HTTP/1.1\r\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "two spaces after the method",
        b"GET  /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "two spaces before the version",
        b"GET /health  HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a tab after the method",
        b"GET\t/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a tab before the version",
        b"GET /health\tHTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a vertical tab after the method",
        b"GET\x0b/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "no method",
        b" /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "no target",
        b"GET HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "an empty target",
        b"GET  HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a method in lower case",
        b"get /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(405),
    ),
    row(
        "a method with NUL",
        b"G\0T /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a method with a colon",
        b"GE:T /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a method in brackets",
        b"(GET) /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a method of high bytes",
        b"G\xc3\x89T /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "an unknown method",
        b"BREW /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(405),
    ),
    row(
        "a method of punctuation",
        b"!#$%&'*+-.^_`|~ /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(405),
    ),
    row(
        "TRACE",
        b"TRACE /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(405),
    ),
    row(
        "TRACE of everything",
        b"TRACE * HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "PUT to a route of POST",
        b"PUT /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
        Kept(405),
    ),
    row(
        "GET of a route of POST",
        b"GET /tokenize HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(405),
    ),
    row(
        "HEAD",
        b"HEAD /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        Closed(200),
    ),
    row(
        "HEAD of nothing",
        b"HEAD /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        Closed(404),
    ),
    row("HTTP/1.0", b"GET /health HTTP/1.0\r\n\r\n", Closed(200)),
    row(
        "HTTP/1.0 that stays",
        b"GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
        Kept(200),
    ),
    row("garbage", b"\x00\x01\x02\x03\xff\xfe\r\n\r\n", Closed(400)),
    row("only spaces", b"        \r\n\r\n", Closed(400)),
    row("only CR", b"\r\r\r\r", Closed(400)),
    row("an unended line of LFs", b"\n\n\n\n", Ended(&[])),
    row("JSON", b"{\"model\":\"fake\"}\r\n\r\n", Closed(400)),
    row("a status line", b"HTTP/1.1 200 OK\r\n\r\n", Closed(400)),
    row(
        "a proxy's line before",
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
];
