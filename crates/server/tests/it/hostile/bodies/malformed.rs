//! Ways in which a body is not the JSON object that it should be.

use serde_json::Value;

/// Deeper than any parser's stack.
const DEEP: usize = 100_000;

/// A kind of malformed body, and how it is made of one that is well-formed.
type Malformed = (&'static str, fn(&Value) -> Vec<u8>);

/// All of them are refused.
pub(super) const MALFORMED: &[Malformed] = &[
    ("an empty body", |_| Vec::new()),
    ("blanks", |_| b" \r\n\t ".to_vec()),
    ("the first half", |body| {
        let text = body.to_string();
        text.as_bytes()[..text.len() / 2].to_vec()
    }),
    ("all but the last byte", |body| {
        let mut text = body.to_string();
        text.pop();
        text.into_bytes()
    }),
    ("a string without an end", |_| b"{\"model\": \"fa".to_vec()),
    ("an escape without an end", |_| {
        b"{\"model\": \"\\u00".to_vec()
    }),
    ("bytes after the end", |body| {
        format!("{body}x").into_bytes()
    }),
    ("two objects", |body| format!("{body}{body}").into_bytes()),
    ("two lines of JSON", |body| {
        format!("{body}\n{body}").into_bytes()
    }),
    ("a trailing comma", |body| with(body, ",")),
    ("a comment", |body| with(body, ", /* x */ \"x\": 1")),
    ("a name without quotes", |body| with(body, ", x: 1")),
    ("single quotes", |body| {
        body.to_string().replace('"', "'").into_bytes()
    }),
    ("NaN", |body| with(body, ", \"x\": NaN")),
    ("Infinity", |body| with(body, ", \"x\": -Infinity")),
    ("a hexadecimal number", |body| with(body, ", \"x\": 0x10")),
    ("a number with a plus", |body| with(body, ", \"x\": +1")),
    ("a number with leading zeros", |body| {
        with(body, ", \"x\": 007")
    }),
    ("a number without digits after the point", |body| {
        with(body, ", \"x\": 1.")
    }),
    ("words of Python", |body| {
        with(body, ", \"x\": None, \"y\": True")
    }),
    ("an unknown escape", |body| with(body, ", \"x\": \"\\x41\"")),
    ("a line end in a string", |body| {
        with(body, ", \"x\": \"a\nb\"")
    }),
    ("a NUL in a string", |body| with(body, ", \"x\": \"a\0b\"")),
    ("a NUL after the end", |body| {
        format!("{body}\0").into_bytes()
    }),
    ("a byte that is not UTF-8", |body| {
        with_bytes(body, b", \"x\": \"\xff\"")
    }),
    ("UTF-8 that is cut", |body| {
        with_bytes(body, b", \"x\": \"\xe2\x82\"")
    }),
    ("overlong UTF-8", |body| {
        with_bytes(body, b", \"x\": \"\xc0\xaf\"")
    }),
    ("a surrogate as UTF-8", |body| {
        with_bytes(body, b", \"x\": \"\xed\xa0\x80\"")
    }),
    ("UTF-16", |body| {
        let units = body.to_string();
        units.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }),
    ("null", |_| b"null".to_vec()),
    ("true", |_| b"true".to_vec()),
    ("a number", |_| b"17".to_vec()),
    ("a string", |_| b"\"hi\"".to_vec()),
    ("an array", |body| format!("[{body}]").into_bytes()),
    ("JSON in a string", |body| {
        Value::String(body.to_string()).to_string().into_bytes()
    }),
    ("a form", |_| b"model=fake&prompt=hi".to_vec()),
    ("XML", |_| {
        b"<?xml version=\"1.0\"?><model>fake</model>".to_vec()
    }),
    ("arrays too deep without an end", |_| {
        "[".repeat(DEEP).into_bytes()
    }),
    ("objects too deep without an end", |_| {
        "{\"x\":".repeat(DEEP).into_bytes()
    }),
    ("bytes at random", |_| {
        (0..997u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()
    }),
];

/// The object with this text before its closing brace.
fn with(body: &Value, more: &str) -> Vec<u8> {
    with_bytes(body, more.as_bytes())
}

fn with_bytes(body: &Value, more: &[u8]) -> Vec<u8> {
    let mut text = body.to_string().into_bytes();
    text.pop();
    text.extend_from_slice(more);
    text.push(b'}');
    text
}
