//! Request targets and Host fields.

use super::Want::{Closed, Kept};
use super::{Vector, row};

pub(super) const ROWS: &[Vector] = &[
    row(
        "absolute form",
        b"GET http://localhost/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "absolute form, HTTPS",
        b"GET https://localhost/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "absolute form without a path",
        b"GET http://localhost HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "absolute form of another host",
        b"GET http://evil.example/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(421),
    ),
    row(
        "absolute form before the Host field",
        b"GET http://localhost/v1/models HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        Kept(200),
    ),
    row(
        "absolute form with a user",
        b"GET http://localhost@evil.example/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(421),
    ),
    row(
        "absolute form with a user at ours",
        b"GET http://evil.example@localhost/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(421),
    ),
    row(
        "absolute form without a host",
        b"GET http:///v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "absolute form without Host",
        b"GET http://localhost/v1/models HTTP/1.1\r\n\r\n",
        Kept(400),
    ),
    row(
        "authority form",
        b"GET localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "asterisk form",
        b"GET * HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "a relative path",
        b"GET health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "another scheme",
        b"GET file:///etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "OPTIONS of everything",
        b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(405),
    ),
    row(
        "CONNECT",
        b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost:80\r\n\r\n",
        Kept(404),
    ),
    row(
        "CONNECT elsewhere",
        b"CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example:443\r\n\r\n",
        Kept(421),
    ),
    row(
        "CONNECT of a path",
        b"CONNECT /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(405),
    ),
    row(
        "a fragment",
        b"GET /health#x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "a query",
        b"GET /health?a=b&c HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "dots",
        b"GET /v1/../health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "dots in percent",
        b"GET /v1/%2e%2e/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "dots after health",
        b"GET /health/../v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "slashes",
        b"GET //health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(200),
    ),
    row(
        "a backslash",
        b"GET /v1\\models HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "NUL in percent",
        b"GET /v1/models/%00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "half a percent",
        b"GET /v1/models/%2 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "bytes in percent that are no UTF-8",
        b"GET /v1/models/%ff%fe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(400),
    ),
    row(
        "CRLF in percent",
        b"GET /v1/models/%0d%0ahost:%20x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "NUL in the target",
        b"GET /hea\0lth HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a control byte in the target",
        b"GET /hea\x01lth HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "DEL in the target",
        b"GET /hea\x7flth HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a bare CR in the target",
        b"GET /hea\rlth HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "UTF-8 in the target",
        b"GET /v1/models/\xc3\xa9 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Kept(404),
    ),
    row(
        "high bytes in the target",
        b"GET /v1/models/\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "a space in the target",
        b"GET /health x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
    row(
        "quotes and braces",
        b"GET /v1/models/\"<{}>\" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        Closed(400),
    ),
];
