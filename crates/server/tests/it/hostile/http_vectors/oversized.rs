//! Heads and bodies that are too large, made when they are needed.

use super::Want::{Closed, Kept};
use super::{Vector, made};
use server::ServerConfig;

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn rows() -> Vec<Vector> {
    let bounds = ServerConfig::default();
    let (head, fields) = (bounds.header_bytes_max, bounds.headers_max);
    let get = |target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n").into_bytes()
    };
    let many = |count: usize| get("/v1/models", &"x-a: b\r\n".repeat(count));
    let field = |bytes: usize| get("/v1/models", &format!("x-a: {}\r\n", "x".repeat(bytes)));
    let name = |bytes: usize| get("/v1/models", &format!("{}: x\r\n", "x".repeat(bytes)));
    let path = |bytes: usize| get(&format!("/v1/models/{}", "x".repeat(bytes)), "");
    let body = |fields: &str, body: &[u8]| {
        let head =
            "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        [head.as_bytes(), fields.as_bytes(), b"\r\n", body].concat()
    };
    let max = bounds.body_bytes_max;
    let chunks = |count: usize, size: &str, data: &str| {
        let chunk = format!("{size}\r\n{data}\r\n");
        [chunk.repeat(count).as_bytes(), b"0\r\n\r\n"].concat()
    };
    let in_chunks = "transfer-encoding: chunked\r\n";
    let extension = |bytes: usize| format!("1;{}", "x".repeat(bytes));
    let trailers = |count: usize| {
        let body = format!("2\r\n{{}}\r\n0\r\n{}\r\n", "x-a: b\r\n".repeat(count));
        body.into_bytes()
    };
    vec![
        made("as many fields as may be", many(fields - 1), Kept(200)),
        made("one field more", many(fields), Closed(431)),
        made("many fields", many(10 * fields), Closed(431)),
        made("a long field", field(head / 2), Kept(200)),
        made("a field over the bound", field(head), Closed(431)),
        made("a field far over the bound", field(64 * head), Closed(431)),
        made("a name over the bound", name(head), Closed(431)),
        made("a long path", path(head / 2), Kept(404)),
        made("a path over the bound", path(head), Closed(431)),
        made("a method over the bound", vec![b'G'; 2 * head], Closed(431)),
        made(
            "a version over the bound",
            [b"GET / ", &vec![b'H'; head][..]].concat(),
            Closed(400),
        ),
        made(
            "empty lines over the bound",
            b"\r\n".repeat(head),
            Closed(431),
        ),
        made(
            "a body at the bound",
            body(&format!("content-length: {max}\r\n"), &vec![b' '; max]),
            Kept(400),
        ),
        made(
            "a body in chunks over the bound",
            body(in_chunks, &chunks(65, "10000", &" ".repeat(1 << 16))),
            Closed(413),
        ),
        made(
            "chunks of a byte",
            body(in_chunks, &chunks(5000, "1", " ")),
            Kept(400),
        ),
        made(
            "an extension of some length",
            body(in_chunks, &chunks(1, &extension(1000), " ")),
            Kept(400),
        ),
        made(
            "an extension over the bound",
            body(in_chunks, &chunks(1, &extension(64 << 10), " ")),
            Closed(400),
        ),
        made(
            "extensions over the bound together",
            body(in_chunks, &chunks(1000, &extension(100), " ")),
            Closed(400),
        ),
        made(
            "a size over the bound",
            body(in_chunks, &chunks(1, &"0".repeat(64 << 10), " ")),
            Closed(400),
        ),
        made("trailers", body(in_chunks, &trailers(10)), Closed(400)),
        made(
            "trailers over the bound",
            body(in_chunks, &trailers(10_000)),
            Closed(400),
        ),
    ]
}
