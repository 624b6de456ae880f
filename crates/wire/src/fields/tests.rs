//! Invalid values in errors.

use super::{Fields, SCHEMA_MESSAGE, edit_distance};
use crate::response_format::json_schema_format;

#[test]
fn invalid_value_is_repeated_if_it_is_short_and_a_double() {
    for (value, shown) in [
        ("7", Some("7")),
        ("-1.5e3", Some("-1.5e3")),
        ("true", Some("true")),
        ("2e308", None),
        ("0.12345678901234567890123456789012345", None),
        ("\"text\"", None),
        ("[7]", None),
    ] {
        let body = format!("{{\"stop\": {value}}}");
        let mut fields = Fields::parse(body.as_bytes()).expect("an object");
        fields.reject("stop", "must be something else");
        let error = fields.finish().expect_err("a problem");
        assert_eq!(error.problems[0].value.as_deref(), shown, "{value}");
    }
}

/// A list without a bound has none in its error; a schema that cannot be read names what may be wrong with it.
#[test]
fn constraint_names_what_the_value_breaks() {
    let mut fields = Fields::parse(br#"{"a": "x", "b": {"a": 2e308}}"#).expect("an object");
    fields.array("a", usize::MAX);
    assert!(fields.array("b", 3).is_none());
    let schema = fields.raw("b").expect("a value");
    json_schema_format(&mut fields, "c", schema);
    let error = fields.finish().expect_err("problems");
    let problems = error.problems.iter();
    let told: Vec<_> = problems
        .map(|problem| problem.constraint.as_str())
        .collect();
    let list = "must be a list of at most 3 items";
    assert_eq!(told, ["must be a list", list, SCHEMA_MESSAGE]);
}

#[test]
fn edit_distance_counts_changes() {
    let rows = [
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("abc", "ABC", 0),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("qwen3:0.6", "qwen3:0.6b", 1),
        ("é", "e", 1),
    ];
    for (a, b, want) in rows {
        assert_eq!(edit_distance(a, b), want, "{a} {b}");
        assert_eq!(edit_distance(b, a), want, "{b} {a}");
    }
}
