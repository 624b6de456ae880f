//! Scenarios of answers, independent of families.

use serde_json::{Value, json};

/// A part of a scenario.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Text(&'static str),
    Think(&'static str),
    Call(&'static str, Value),
}

pub(crate) fn call(name: &'static str, args: Value) -> Said {
    Said::Call(name, args)
}

/// Labels and scenarios.
#[expect(clippy::too_many_lines, reason = "one table")]
pub(crate) fn all() -> Vec<(&'static str, Vec<Said>)> {
    use Said::{Text, Think};
    let paris = || call("get_weather", json!({"city": "Paris"}));
    let oslo = || call("get_weather", json!({"city": "Oslo"}));
    let put = |args| vec![call("put", args)];
    vec![
        ("text alone", vec![Text("Hello, world.\n\nBye.")]),
        ("one call", vec![paris()]),
        ("a call without arguments", vec![call("now", json!({}))]),
        (
            "calls in parallel",
            vec![paris(), oslo(), call("now", json!({}))],
        ),
        ("text before a call", vec![Text("Let me look."), paris()]),
        (
            "text before calls",
            vec![Text("I need two."), paris(), oslo()],
        ),
        (
            "thought and text",
            vec![Think("Easy.\nVery."), Text("Four.")],
        ),
        ("thought and a call", vec![Think("Look it up."), paris()]),
        (
            "thought, text, calls",
            vec![Think("Two."), Text("Both:"), paris(), oslo()],
        ),
        (
            "nested values",
            put(json!({"o": {"a": {"b": [1, {"c": []}]}}, "l": [[], [{}]]})),
        ),
        (
            "quotes and backslashes",
            put(json!({"s": "a \"b\" 'c' \\d \\n /e"})),
        ),
        (
            "line ends and tabs",
            put(json!({"s": "one\n\ttwo\n\nthree"})),
        ),
        ("no ascii", put(json!({"s": "Zürich 東京 🦀 e\u{301}"}))),
        (
            "numbers",
            put(json!({"n": -12.5e-3, "i": 0, "l": [1, -1, 1e9]})),
        ),
        ("booleans", put(json!({"b": true, "l": [false, null]}))),
        ("null for a string", put(json!({"u": null, "t": "null"}))),
        ("nothing in it", put(json!({"s": "", "o": {}, "l": []}))),
        (
            "tags in a string",
            put(json!({"s": "<b>x</b> <a href=\"y\"> a < b > c </"})),
        ),
        ("brackets in a string", put(json!({"s": "}]){[( ;, ```"}))),
        ("json in a string", put(json!({"s": "{\"a\": [1, \"x\"]}"}))),
        (
            "code in a string",
            put(json!({"s": "fn main() {\n    println!(\"{}\", 1);\n}\n"})),
        ),
        (
            "many parameters",
            put(json!({"s": "a", "t": "b", "n": 1.5, "i": 7, "b": false, "o": {"k": "v"}})),
        ),
        ("the same call twice", vec![paris(), paris()]),
    ]
}
