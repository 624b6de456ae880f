//! Long answers in every family, with and without mistakes.

use super::dialects::{DIALECTS, Dialect};
use super::scenarios::{Said, call};
use serde_json::json;

/// A long answer.
pub(crate) struct Long {
    pub(crate) dialect: &'static Dialect,
    pub(crate) label: &'static str,
    pub(crate) text: String,
}

/// Long answers of about `bytes` bytes each.
pub(crate) fn all(bytes: usize) -> Vec<Long> {
    let of = |dialect: &'static Dialect| kinds(dialect, bytes);
    DIALECTS.iter().flat_map(of).collect()
}

fn kinds(dialect: &'static Dialect, bytes: usize) -> Vec<Long> {
    let prose = repeated("It is 5 < 7, as \"they\" say; a|b [c] {d}.\n", bytes);
    let rendered = |said: &[Said]| (dialect.render)(said);
    let written = || -> &'static str { Box::leak(prose.clone().into_boxed_str()) };
    let number = json!({"n": 12, "s": "x"});
    let list = vec![number; bytes / 16];
    let calls: Vec<Said> = (0..bytes / 40)
        .map(|_| call("put", json!({"s": "x", "i": 3})))
        .collect();
    [
        ("text", rendered(&[Said::Text(written())])),
        (
            "reasoning",
            rendered(&[Said::Think(written()), Said::Text("So.")]),
        ),
        ("a string", rendered(&[call("put", json!({"s": prose}))])),
        ("a list", rendered(&[call("put", json!({"l": list}))])),
        (
            "a value of no known type",
            rendered(&[call("put", json!({"any": prose}))]),
        ),
        (
            "a string or null",
            rendered(&[call("put", json!({"u": prose}))]),
        ),
        (
            "arguments before the name",
            format!(
                "<tool_call>{{\"arguments\": {{\"s\": \"{}\"}}, \"name\": \"put\"}}",
                repeated("ab ", bytes)
            ),
        ),
        ("many calls", rendered(&calls)),
        (
            "beginnings of tags",
            repeated("<tool_ <|chan [TOOL_ <thi </ ```", bytes),
        ),
        ("blanks", repeated(" \n", bytes)),
        (
            "calls that are none",
            repeated(
                "<tool_call>{\"name\": 1} [TOOL_CALLS]! <|tool_call>x ",
                bytes,
            ),
        ),
        (
            "a call that does not end",
            ["<tool_call>", &repeated("{\"a\": [", bytes)].concat(),
        ),
    ]
    .into_iter()
    .map(|(label, text)| Long {
        dialect,
        label,
        text,
    })
    .collect()
}

fn repeated(text: &str, bytes: usize) -> String {
    text.repeat(bytes / text.len())
}
