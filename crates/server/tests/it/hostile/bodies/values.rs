//! Values that no field expects.

use serde_json::{Value, json};

/// A kind of value, and how it is made.
type Absurd = (&'static str, fn() -> Value);

/// Each is put into each field of each route's body.
pub(super) const VALUES: &[Absurd] = &[
    ("null", || Value::Null),
    ("true", || json!(true)),
    ("0", || json!(0)),
    ("-1", || json!(-1)),
    ("a fraction", || json!(0.5)),
    ("2^31", || json!(1u64 << 31)),
    ("2^63", || json!(1u64 << 63)),
    ("2^64", || number("18446744073709551616")),
    ("the largest double", || json!(f64::MAX)),
    ("the smallest double", || json!(f64::MIN_POSITIVE)),
    ("an empty string", || json!("")),
    ("a number as a string", || json!("12")),
    ("a string with NUL", || json!("a\0b")),
    ("a string of control characters", || {
        json!("\u{1}\u{7f}\u{9f}\u{2028}")
    }),
    ("a string of marks", || json!("<|bos|><|eos|><|im_start|>")),
    ("a string of 50 KB", || json!("a".repeat(50_000))),
    ("an empty array", || json!([])),
    ("an array of null", || json!([null])),
    ("an array of arrays", || json!([[[]]])),
    ("an array of objects", || json!([{}, {}])),
    ("an array of -1", || json!([-1])),
    ("an array of 2^40", || json!([1u64 << 40])),
    ("an array of 10,000 strings", || json!(vec!["x"; 10_000])),
    ("an empty object", || json!({})),
    ("an object with an empty name", || json!({"": ""})),
    ("an object of an unknown type", || json!({"type": "absurd"})),
    (
        "an object of a type that is a number",
        || json!({"type": 1}),
    ),
    ("60 arrays in each other", || {
        (0..60).fold(json!(1), |inner, _| json!([inner]))
    }),
    ("60 objects in each other", || {
        (0..60).fold(json!(1), |inner, _| json!({"x": inner}))
    }),
];

/// The names of a body's fields, and one that no route knows.
pub(super) fn fields(body: &Value) -> Vec<String> {
    let names = body.as_object().expect("an object").keys().cloned();
    names.chain(["no_such_field".to_owned()]).collect()
}

/// A number that fits no integer.
fn number(text: &str) -> Value {
    serde_json::from_str(text).expect("a number")
}
