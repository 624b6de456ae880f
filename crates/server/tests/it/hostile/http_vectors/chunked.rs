//! Chunks, and bodies with two framings: what would be read differently by two servers in a row.

use super::Want::{Closed, Ended, Kept};
use super::{Vector, row};

/// A request whose body is in chunks; what follows the fields is the body.
macro_rules! chunked {
    ($body:literal) => {
        chunked!("transfer-encoding: chunked\r\n", $body)
    };
    ($fields:literal, $body:literal) => {
        concat!(
            "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n",
            $fields,
            "\r\n",
            $body
        )
        .as_bytes()
    };
}

/// A request for a stream with a length of 0, and chunks.
macro_rules! streamed {
    ($fields:literal) => {
        concat!(
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n",
            $fields,
            "\r\n2b\r\n{\"prompt\":\"A\",\"max_tokens\":1,\"stream\":true}\r\n0\r\n\r\n"
        )
        .as_bytes()
    };
}

pub(super) const ROWS: &[Vector] = &[
    row("one chunk", chunked!("10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(200)),
    row("three chunks", chunked!("1\r\n{\r\n8\r\n\"content\r\n7\r\n\":\"hi\"}\r\n0\r\n\r\n"), Kept(200)),
    row("no chunk", chunked!("0\r\n\r\n"), Kept(400)),
    row("a size with zeros before", chunked!("0000010\r\n{\"content\":\"hi\"}\r\n00\r\n\r\n"), Kept(200)),
    row("a size in upper case", chunked!("1A\r\n{\"content\":\"hi\"          }\r\n0\r\n\r\n"), Kept(200)),
    row("an extension", chunked!("10;a=b\r\n{\"content\":\"hi\"}\r\n0;c\r\n\r\n"), Kept(200)),
    row("an extension in quotes", chunked!("10;a=\"b;c\"\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(200)),
    row("an extension with LF", chunked!("10;a\nb\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("blanks after the size", chunked!("10 \t\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(200)),
    row("a blank before the size", chunked!(" 10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("an empty size", chunked!("\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a size that is only an extension", chunked!(";a\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a size with 0x", chunked!("0x10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a size with plus", chunked!("+10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a negative size", chunked!("-10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a size with an underscore", chunked!("1_0\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a size of other letters", chunked!("g\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a size of 2^64", chunked!("10000000000000000\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a size of 2^64 - 1", chunked!("ffffffffffffffff\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Ended(&[400])),
    row("a size that wraps", chunked!("10000000000000010\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("sizes with LF", chunked!("10\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("sizes with CR", chunked!("10\r{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("data with LF after", chunked!("10\r\n{\"content\":\"hi\"}\n0\r\n\r\n"), Closed(400)),
    row("data with nothing after", chunked!("10\r\n{\"content\":\"hi\"}0\r\n\r\n"), Closed(400)),
    row("more data than the size", chunked!("4\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("less data than the size", chunked!("20\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Ended(&[400])),
    row("no last chunk", chunked!("10\r\n{\"content\":\"hi\"}\r\n"), Ended(&[400])),
    row("half of the last chunk", chunked!("10\r\n{\"content\":\"hi\"}\r\n0\r\n"), Ended(&[400])),
    row("the end of chunks with LF", chunked!("10\r\n{\"content\":\"hi\"}\r\n0\r\n\n"), Closed(200)),
    row("a trailer", chunked!("10\r\n{\"content\":\"hi\"}\r\n0\r\nx-a: b\r\n\r\n"), Closed(200)),
    row("a length in a trailer", chunked!("10\r\n{\"content\":\"hi\"}\r\n0\r\ncontent-length: 99\r\n\r\n"), Closed(200)),
    row("a host and a key in a trailer", chunked!("10\r\n{\"content\":\"hi\"}\r\n0\r\nhost: evil.example\r\nauthorization: Bearer a\r\n\r\n"), Closed(200)),
    row("a trailer without a colon", chunked!("10\r\n{\"content\":\"hi\"}\r\n0\r\nx-a\r\n\r\n"), Closed(400)),
    row("announced trailers", chunked!("transfer-encoding: chunked\r\ntrailer: x-a\r\nte: trailers\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\nx-a: b\r\n\r\n"), Closed(200)),
    row("Chunked", chunked!("Transfer-Encoding: Chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(200)),
    row("blanks around chunked", chunked!("transfer-encoding: \t chunked \t \r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(200)),
    row("an empty member before chunked", chunked!("transfer-encoding: , chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(200)),
    row("gzip and chunked", chunked!("transfer-encoding: gzip, chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(501)),
    row("gzip and chunked in two lines", chunked!("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(501)),
    row("identity and chunked", chunked!("transfer-encoding: identity, chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(501)),
    row("chunked twice", chunked!("transfer-encoding: chunked, chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(400)),
    row("chunked in two lines", chunked!("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Kept(400)),
    row("chunked and identity", chunked!("transfer-encoding: chunked, identity\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("chunked and identity in two lines", chunked!("transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("chunked and gzip", chunked!("transfer-encoding: chunked, gzip\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("xchunked", chunked!("transfer-encoding: xchunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("chunked with a parameter", chunked!("transfer-encoding: chunked;q=1\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("chunked in quotes", chunked!("transfer-encoding: \"chunked\"\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("chunked and a vertical tab", chunked!("transfer-encoding: chunked\x0b\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("chunked and NUL", chunked!("transfer-encoding: chunked\0\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("chunked, folded", chunked!("transfer-encoding:\r\n chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("an empty transfer coding", chunked!("transfer-encoding:\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a blank before the coding's colon", chunked!("transfer-encoding : chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(400)),
    row("a name like Transfer-Encoding", chunked!("transfer_encoding: chunked\r\ncontent-length: 16\r\n", "{\"content\":\"hi\"}"), Kept(200)),
    row("chunked in HTTP/1.0", b"POST /tokenize HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n", Closed(400)),
    row("a length, then chunks", chunked!("content-length: 4\r\ntransfer-encoding: chunked\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(200)),
    row("chunks, then a length", chunked!("transfer-encoding: chunked\r\ncontent-length: 4\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(200)),
    row("chunks, then a broken length", chunked!("transfer-encoding: chunked\r\ncontent-length: x\r\n", "10\r\n{\"content\":\"hi\"}\r\n0\r\n\r\n"), Closed(200)),
    row("a length that hides a request behind chunks", chunked!("content-length: 5\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\nGET /x HTTP/1.1\r\nhost: localhost\r\n\r\n"), Closed(400)),
    row("a length that hides a request in a chunk", chunked!("content-length: 4\r\ntransfer-encoding: chunked\r\n", "24\r\nGET /x HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n0\r\n\r\n"), Closed(400)),
    row("a coding nobody knows hides a request", chunked!("content-length: 4\r\ntransfer-encoding: xchunked\r\n", "24\r\nGET /x HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n0\r\n\r\n"), Closed(400)),
    row("a stream with a length and chunks", streamed!("content-length: 4\r\ntransfer-encoding: chunked\r\n"), Closed(200)),
    row("a stream with chunks and a length", streamed!("transfer-encoding: chunked\r\ncontent-length: 4\r\n"), Closed(200)),
    row("a stream with chunks", streamed!("transfer-encoding: chunked\r\n"), Kept(200)),
    row("chunks of GET", b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n24\r\nGET /x HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n0\r\n\r\n", Kept(200)),
];
