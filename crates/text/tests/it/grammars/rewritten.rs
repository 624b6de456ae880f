//! Keywords that are rewritten for the grammar: a table of valid and invalid answers.

use super::compiler;
use super::white_space::is_whole;
use serde_json::{Value, json};
use text::GrammarSource;

type Row = (Value, &'static [&'static str], &'static [&'static str]);

fn rows() -> Vec<Row> {
    let ab = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
    vec![
        (
            json!({"type": "object", "properties": ab, "not": {"required": ["a", "b"]}}),
            &["{}", r#"{"a":1}"#, r#"{"b":1}"#],
            &[r#"{"a":1,"b":1}"#, "7"],
        ),
        (
            json!({"type": "string", "not": {"enum": ["none", "no"]}}),
            &[r#""""#, r#""n""#, r#""non""#, r#""nones""#, r#""yes""#],
            &[r#""none""#, r#""no""#],
        ),
        (
            json!({"not": {"type": ["object", "null"]}}),
            &["7", r#""a""#, "[]", "true"],
            &["{}", "null"],
        ),
        (
            json!({"type": "integer", "not": {"enum": [0, 2]}, "minimum": -1, "maximum": 3}),
            &["-1", "1", "3"],
            &["0", "2", "4"],
        ),
        (
            json!({"type": "object", "properties": ab, "additionalProperties": false,
                "if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]},
                "else": {"properties": {"b": false}}}),
            &["{}", r#"{"a":2}"#, r#"{"a":1,"b":3}"#],
            &[r#"{"a":1}"#, r#"{"a":2,"b":3}"#, r#"{"b":3}"#],
        ),
        (
            json!({"type": "object", "properties": ab, "dependencies": {"b": ["a"]}}),
            &["{}", r#"{"a":1}"#, r#"{"a":1,"b":1}"#],
            &[r#"{"b":1}"#],
        ),
        (
            json!({"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}, "additionalProperties": {"type": "integer"}}),
            &["{}", r#"{"abc":1}"#],
            &[r#"{"abd":1}"#, r#"{"a":"x"}"#, r#"{"":1}"#],
        ),
        (
            json!({"anyOf": [{"$ref": "#id"}, {"$ref": "name.json"}, {"$ref": "https://x.org/name.json#/$defs/flag"}],
                "$id": "https://x.org/root.json", "$defs": {"a": {"$anchor": "id", "type": "integer"},
                "b": {"$id": "name.json", "type": "string", "$defs": {"flag": {"type": "boolean"}}}}}),
            &["7", r#""x""#, "true"],
            &["null", "7.5"],
        ),
        (
            json!({"type": "string", "pattern": r"^[\-\/\_\@]\-\/\_\@\a$"}),
            &[r#""@-/_@a""#, r#""--/_@a""#],
            &[r#""-/_@a""#],
        ),
        (
            json!({"type": "object", "properties": ab, "propertyNames": {"maxLength": 1}, "required": ["a"]}),
            &[r#"{"a":1}"#, r#"{"a":1,"c":[]}"#],
            &[r#"{"a":1,"cd":[]}"#],
        ),
    ]
}

#[test]
fn rewritten_keywords_are_enforced() {
    let (tokenizer, compiler) = compiler();
    for (schema, valid, invalid) in rows() {
        let grammar = compiler.compile(&GrammarSource::JsonSchema(schema.clone()));
        let grammar = grammar.unwrap_or_else(|why| panic!("{schema}: {why}"));
        for (texts, expected) in [(valid, true), (invalid, false)] {
            for text in texts {
                let whole = is_whole(&tokenizer, grammar.matcher(), text);
                assert_eq!(whole, expected, "{text} under {schema}");
            }
        }
    }
}

/// Members that a condition names are not rejected where objects are closed by default.
#[test]
fn objects_with_conditions_are_left_as_written() {
    let (tokenizer, compiler) = compiler();
    for schema in [
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "if": {"required": ["a"]},
            "then": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}),
        json!({"type": "object", "properties": {"a": {"type": "integer"}},
            "dependencies": {"a": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}}),
    ] {
        let source = GrammarSource::JsonSchema(schema.clone()).with_closed_objects();
        let grammar = compiler.compile(&source);
        let grammar = grammar.unwrap_or_else(|why| panic!("{schema}: {why}"));
        for (text, expected) in [
            (r#"{"a":1,"b":2}"#, true),
            (r#"{"a":1}"#, false),
            (r#"{"c":1}"#, true),
        ] {
            let whole = is_whole(&tokenizer, grammar.matcher(), text);
            assert_eq!(whole, expected, "{text} under {schema}");
        }
    }
}
