//! Numbers under a schema: bounds, large integers, multiples, and their end.
//!
//! Promise (Structured output): numbers of a schema are exact: 64-bit integers keep their digits, exclusive bounds
//! exclude, multiples are decimals; a number ends.
//! Also held by `text/src/grammar/schema_numbers.rs`, `text/src/grammar/large_numbers.rs`,
//! `text/src/grammar/number_lexemes.rs`.
//!
//! Promise (Structured output): patterns of a schema are those of ECMA-262, and references are JSON Pointers with
//! escapes.
//! Also held by `text/src/grammar/schema_normalization/ecma_pattern.rs`,
//! `text/src/grammar/schema_normalization.rs`.

use super::white_space::is_whole;
use super::{compiler, fault, rng, tiny, walk};
use serde_json::{Value, json};
use text::{GrammarCompiler, GrammarMatcher, GrammarSource, NUMBER_CHARS_MAX};

type Row = (Value, &'static [&'static str], &'static [&'static str]);

const LEAST: &str = "-9223372036854775808";

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    vec![
        (
            json!({"const": 1_234_567_890_123_456_789_i64}),
            &["1234567890123456789"],
            &[
                "1234567890123456768",
                "1234567890123456790",
                "9007199254741056",
                "1",
            ],
        ),
        (
            json!({"const": {"id": [-1_234_567_890_123_456_789_i64, u64::MAX]}}),
            &[r#"{"id":[-1234567890123456789,18446744073709551615]}"#],
            &[r#"{"id":[1234567890123456789,18446744073709551615]}"#],
        ),
        (
            json!({"enum": [9_007_199_254_740_993_i64, 9_007_199_254_740_994_i64, i64::MIN, 7, "a", 1e300]}),
            &[
                "9007199254740993",
                "9007199254740994",
                LEAST,
                "7",
                r#""a""#,
                "1e300",
            ],
            &[
                "9007199254740992",
                "9007199254740995",
                "-9223372036854775807",
                "8",
            ],
        ),
        (
            json!({"type": "integer", "minimum": 9_007_199_254_740_993_i64, "maximum": 9_007_199_254_740_993_i64}),
            &["9007199254740993"],
            &["9007199254740992", "9007199254740994"],
        ),
        (
            json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX}),
            &["0", "-1", "9223372036854775807", LEAST, "9007199254740993"],
            &[
                "9223372036854775808",
                "-9223372036854775809",
                "10000000000000000000",
                "1.5",
            ],
        ),
        (
            json!({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": u64::MAX}),
            &["1", "18446744073709551614", "9007199254740992"],
            &["0", "18446744073709551615", "-1"],
        ),
        (
            json!({"type": "integer", "minimum": 5, "maximum": 1_152_921_504_606_846_979_i64}),
            &["5", "1152921504606846979", "1000000000000000001"],
            &["4", "1152921504606846980", "9152921504606846979"],
        ),
        (
            json!({"type": "integer", "minimum": 1e25}),
            &["10000000000000000905969664", "20000000000000000000000000"],
            &["9999999999999999999999999", "1"],
        ),
        (
            json!({"type": "number", "minimum": -1e308, "maximum": f64::MAX}),
            &["0", "-1.5", "12345678901234567890"],
            &[],
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"const": 9_007_199_254_740_993_i64}, {"type": "integer", "maximum": 3}]}),
            &[
                r#""9007199254740992""#,
                "9007199254740993",
                "3",
                "-9007199254740993",
            ],
            &["9007199254740992", "9007199254740994", "4"],
        ),
        (
            json!({"type": "integer", "not": {"const": 9_007_199_254_740_993_i64}}),
            &["9007199254740992", "9007199254740994", "1"],
            &["9007199254740993"],
        ),
        (
            json!({"allOf": [{"type": "integer", "minimum": 9_007_199_254_740_993_i64}, {"maximum": 9_007_199_254_740_995_i64}]}),
            &["9007199254740993", "9007199254740995"],
            &["9007199254740992", "9007199254740996"],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}),
            &["0.5", "0.1", "0.0001"],
            &["0", "0.0", "0.6", "-0"],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": 1, "maximum": 1.5}),
            &["1.5", "1.01"],
            &["1", "1.0"],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": 1.2, "exclusiveMaximum": 1.7}),
            &["1.3", "1.69"],
            &["1.2", "1.7", "1", "1.20"],
        ),
        (
            json!({"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}),
            &["-0.5", "-0.1"],
            &["0", "-0", "-0.0"],
        ),
        (
            json!({"type": "number", "exclusiveMinimum": 0}),
            &["1", "0.25", "100.5"],
            &["0", "-1"],
        ),
        (
            json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
            &["1", "0.25"],
            &["0", "-1"],
        ),
        (
            json!({"type": "integer", "exclusiveMinimum": 1.2, "exclusiveMaximum": 3}),
            &["2"],
            &["1", "3"],
        ),
        (
            json!({"type": "number", "multipleOf": 0.07, "minimum": 0}),
            &["0.07", "0.7", "7", "0.14"],
            &["0.08", "0.071", "1"],
        ),
        (
            json!({"type": "number", "multipleOf": 0.29}),
            &["0.29", "-0.58", "29"],
            &["0.3", "1"],
        ),
        (
            json!({"type": "string", "minLength": 1.0, "maxLength": 2.0}),
            &[r#""a""#, r#""ab""#],
            &[r#""""#, r#""abc""#],
        ),
        (
            json!({"type": "integer", "multipleOf": 4, "enum": [4, 6, 9_007_199_254_740_996_i64], "maximum": u64::MAX}),
            &["4"],
            &["6", "9007199254740994", "9007199254741056"],
        ),
    ]
}

fn compiled(compiler: &GrammarCompiler, source: &GrammarSource) -> GrammarMatcher {
    let grammar = compiler.compile(source);
    grammar
        .unwrap_or_else(|why| panic!("{source:?}: {why}"))
        .matcher()
}

#[test]
fn numbers_are_exact() {
    let (tokenizer, compiler) = compiler();
    for (schema, valid, invalid) in rows() {
        for source in [
            GrammarSource::JsonSchema(schema.clone()),
            GrammarSource::JsonSchema(schema.clone()).with_closed_objects(),
        ] {
            for (texts, expected) in [(valid, true), (invalid, false)] {
                for text in texts {
                    let is_taken = is_whole(&tokenizer, compiled(&compiler, &source), text);
                    assert_eq!(is_taken, expected, "{text} under {schema}");
                }
            }
        }
        // In the present draft exclusiveMinimum is a number; the validator rounds decimal multiples.
        let Ok(validator) = jsonschema::validator_for(&schema) else {
            continue;
        };
        if schema["multipleOf"].is_f64() {
            continue;
        }
        for seed in 0..12 {
            let walk = walk(
                &tokenizer,
                compiled(&compiler, &GrammarSource::JsonSchema(schema.clone())),
                &mut rng(seed),
            );
            assert_eq!(
                fault(&validator, &walk),
                None,
                "{} under {schema}",
                walk.text
            );
        }
    }
}

#[test]
fn multiples_that_never_meet_are_exact() {
    let (tokenizer, compiler) = compiler();
    let schema = json!({"type": "object", "required": ["price", "amount"], "additionalProperties": false, "properties": {
        "price": {"anyOf": [{"type": "number", "multipleOf": 0.01}, {"type": "null"}], "title": "Price"},
        "amount": {"type": "integer", "multipleOf": 100_000}}});
    let source = GrammarSource::JsonSchema(schema).with_closed_objects();
    for (text, expected) in [
        (r#"{"price":1.75,"amount":300000}"#, true),
        (r#"{"price":null,"amount":0}"#, true),
        (r#"{"price":1.755,"amount":300000}"#, false),
        (r#"{"price":null,"amount":1000}"#, false),
    ] {
        let is_taken = is_whole(&tokenizer, compiled(&compiler, &source), text);
        assert_eq!(is_taken, expected, "{text}");
    }
}

#[test]
fn numbers_in_embedded_schemas_are_exact() {
    let (tokenizer, compiler) = compiler();
    let lark = GrammarSource::Lark(
        "start: \"a\" %json {\"type\": \"integer\", \"exclusiveMinimum\": 9007199254740993} | \"b\" %json {\"const\": 9007199254740993}".to_owned(),
    );
    for (text, expected) in [
        ("a9007199254740993", false),
        ("a9007199254740994", true),
        ("b9007199254740993", true),
        ("b9007199254740994", false),
    ] {
        let is_taken = is_whole(&tokenizer, compiled(&compiler, &lark), text);
        assert_eq!(is_taken, expected, "{text}");
    }
}

#[test]
fn terminals_beside_embedded_schemas_stay_as_written() {
    let (tokenizer, compiler) = compiler();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"$ref": "#/$defs/a~1b"}},
        "required": ["n", "s"], "additionalProperties": false, "$defs": {"a/b": {"type": "string", "pattern": r"^[^[\]]{{x$", "maxLength": 9.0}}});
    let valid = r#"{"n":1,"s":"a{{x"}"#;
    let long = format!("{{\"n\":{},\"s\":\"a{{{{x\"}}", "1".repeat(100));
    let other = r#"{"n":1,"s":"[{{x"}"#;
    let digits = "1".repeat(100);
    for terminal in [
        "/[0-9]{100}/",
        "/[1-9][0-9]{99}/",
        "/[1-9][0-9]*/",
        "/[0-9]+/",
    ] {
        let lark = format!("start: ID obj\nID: {terminal}\nobj: %json {schema}");
        let lark = GrammarSource::Lark(lark);
        for (json, expected) in [(valid, true), (&long, false), (other, false)] {
            let text = format!("{digits}{json}");
            let is_taken = is_whole(&tokenizer, compiled(&compiler, &lark), &text);
            assert_eq!(is_taken, expected, "{text} under {terminal}");
        }
    }
    let lark = GrammarSource::Lark("start: /[1-9][0-9]*/ \"x\"".to_owned());
    assert!(is_whole(
        &tokenizer,
        compiled(&compiler, &lark),
        &format!("{digits}x")
    ));
}

/// Length of the answer of a model that prefers one character to all others, and any other of a number to the end.
fn preferred(mut matcher: GrammarMatcher, preferred: u8, schema: &Value) -> usize {
    let mut length = 0;
    while !matcher.is_complete() {
        let mut mask = [0u32; 9];
        matcher.mask(&mut mask).expect("a mask");
        let has = |id: u32| mask[id as usize / 32] >> (id % 32) & 1 == 1;
        let others = b"123456789.0-";
        let token = [preferred]
            .iter()
            .chain(others)
            .copied()
            .map(u32::from)
            .find(|id| has(*id));
        let Some(token) = token else { break };
        matcher.accept(token).expect("an allowed token");
        length += 1;
        assert!(length < 1000, "no end under {schema}");
    }
    assert!(
        matcher.is_accepting(),
        "after {length} characters under {schema}"
    );
    length
}

#[test]
fn numbers_end() {
    let (_, compiler) = compiler();
    for schema in [
        json!({"type": "number"}),
        json!({"type": "integer"}),
        json!({"type": "number", "minimum": 0.5}),
        json!({"type": "number", "exclusiveMaximum": -3}),
        json!({"type": "number", "minimum": 1, "maximum": 2}),
        json!({"type": ["number", "string", "null"], "minimum": -7}),
        json!({"anyOf": [{"type": "number"}, {"const": u64::MAX}, {"type": "object"}]}),
        json!({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"multipleOf": 100_000}}]}),
    ] {
        for first in [b'1', b'-'] {
            let source = GrammarSource::JsonSchema(schema.clone());
            let length = preferred(compiled(&compiler, &source), first, &schema);
            assert!(
                length <= NUMBER_CHARS_MAX + 2,
                "{length} characters under {schema}"
            );
        }
    }
    // A constant that is longer raises the bound.
    let long = json!({"enum": [5e-324, 0.5]});
    let (tokenizer, compiler) = (tiny::tokenizer(), compiler);
    let text = format!("{}", 5e-324);
    let source = GrammarSource::JsonSchema(long);
    assert!(
        is_whole(&tokenizer, compiled(&compiler, &source), &text),
        "{text}"
    );
}

#[test]
fn references_with_escapes_are_followed() {
    let (tokenizer, compiler) = compiler();
    let schema = json!({
        "$defs": {"a/b": {"type": "integer"}, "a~b": {"items": {"$ref": "#/$defs/a~1b"}, "type": "array"}, "a b": {"const": 1}, "é": {"type": "null"}},
        "type": "object", "required": ["x"], "additionalProperties": false,
        "properties": {"x": {"anyOf": [{"$ref": "#/$defs/a~0b"}, {"$ref": "#/$defs/%C3%A9"}, {"$ref": "#/properties/y%20z"}]}, "y z": {"$ref": "#/$defs/a%20b"}},
    });
    for source in [
        GrammarSource::JsonSchema(schema.clone()),
        GrammarSource::JsonSchema(schema.clone()).with_closed_objects(),
    ] {
        for (text, expected) in [
            (r#"{"x":[1,2]}"#, true),
            (r#"{"x":null}"#, true),
            (r#"{"x":1,"y z":1}"#, true),
            (r#"{"x":2}"#, false),
            (r#"{"x":["a"]}"#, false),
        ] {
            let is_taken = is_whole(&tokenizer, compiled(&compiler, &source), text);
            assert_eq!(is_taken, expected, "{text}");
        }
    }
}

#[test]
fn patterns_are_those_of_ecma() {
    let (tokenizer, compiler) = compiler();
    let rows: [(&str, &[&str], &[&str]); 5] = [
        (r"^[^[\]]+$", &["ab"], &["a[", "]"]),
        (r"^{{.*}}$", &["{{}}", "{{ab}}"], &["{}"]),
        (
            r"^(https:\/\/)?[\w-]+\.\d+$",
            &["https://a-b.1", "x.20"],
            &["a b.1"],
        ),
        (r"^a{,2}$", &["a{,2}"], &["aa"]),
        (r"^[^]{2}$", &["ab"], &["a"]),
    ];
    for (pattern, valid, invalid) in rows {
        let text = json!({"type": "string", "pattern": pattern});
        let name = json!({"type": "object", "patternProperties": {pattern: {"const": 1}}, "additionalProperties": false});
        for (texts, expected) in [(valid, true), (invalid, false)] {
            for part in texts {
                let source = GrammarSource::JsonSchema(text.clone());
                let is_taken = is_whole(
                    &tokenizer,
                    compiled(&compiler, &source),
                    &json!(part).to_string(),
                );
                assert_eq!(is_taken, expected, "{part} under {pattern}");
                let source = GrammarSource::JsonSchema(name.clone());
                let is_taken = is_whole(
                    &tokenizer,
                    compiled(&compiler, &source),
                    &json!({*part: 1}).to_string(),
                );
                assert_eq!(is_taken, expected, "{part} as a name under {pattern}");
            }
        }
    }
}
