//! Closed objects: no unknown members, satisfiable combinations, no duplicate members.
//!
//! Promise (Structured output): objects with `properties` and without `additionalProperties` are closed, with no
//! duplicate members; combinations stay satisfiable; in every field that takes a schema, for tools, and as setting
//! and request say.
//! Also held by `server/tests/it/speech/closed.rs`.

use super::white_space::is_whole;
use super::{compiler, rng, schemas, walk};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use text::GrammarSource;

/// Label, schema, valid answers, invalid answers.
type Row = (
    &'static str,
    Value,
    &'static [&'static str],
    &'static [&'static str],
);

#[expect(clippy::too_many_lines, reason = "one table")]
fn plain() -> Vec<Row> {
    let ab = json!({"a": {"type": "integer"}, "b": {"type": "integer"}});
    vec![
        (
            "properties",
            json!({"type": "object", "properties": ab, "required": ["a"]}),
            &[r#"{"a":1}"#, r#"{"a":1,"b":2}"#],
            &[
                r#"{"a":1,"c":2}"#,
                r#"{"a":1,"a":1}"#,
                r#"{"a":1,"\u0061":1}"#,
            ],
        ),
        (
            "properties without a type",
            json!({"properties": ab}),
            &["{}", "7"],
            &[r#"{"c":1}"#],
        ),
        (
            "no properties in properties",
            json!({"type": "object", "properties": {}}),
            &["{}"],
            &[r#"{"c":1}"#],
        ),
        (
            "an open object",
            json!({"type": "object"}),
            &["{}", r#"{"c":{"d":1}}"#],
            &[],
        ),
        (
            "said to be open",
            json!({"type": "object", "properties": ab, "additionalProperties": true}),
            &[r#"{"a":1,"c":[]}"#],
            &[r#"{"a":1,"a":1}"#],
        ),
        (
            "others of a type",
            json!({"type": "object", "properties": ab, "additionalProperties": {"type": "null"}}),
            &[r#"{"a":1,"c":null}"#],
            &[r#"{"a":1,"c":1}"#],
        ),
        (
            "others by a pattern",
            json!({"type": "object", "properties": ab, "patternProperties": {"^x-": {"type": "null"}}}),
            &[r#"{"a":1,"x-c":null}"#],
            &[r#"{"a":1,"c":null}"#],
        ),
        (
            "required without a schema",
            json!({"type": "object", "properties": ab, "required": ["a", "z"]}),
            &[r#"{"a":1,"z":"any"}"#],
            &[r#"{"a":1,"z":1,"y":1}"#],
        ),
        (
            "at every depth",
            json!({"type": "object", "properties": {"o": {"type": "array", "items": {"properties": ab, "type": "object"}}}}),
            &[r#"{"o":[{"a":1}]}"#],
            &[r#"{"o":[{"c":1}]}"#, r#"{"o":[],"c":1}"#],
        ),
        (
            "more members than properties",
            json!({"type": "object", "properties": {"a": {}}, "required": ["a"], "minProperties": 2}),
            &[r#"{"a":1,"c":1}"#],
            &[r#"{"a":1}"#],
        ),
        (
            "data that looks like a schema",
            json!({"const": {"properties": {"a": 1}}}),
            &[r#"{"properties":{"a":1}}"#],
            &[],
        ),
    ]
}

#[expect(clippy::too_many_lines, reason = "one table")]
fn combined() -> Vec<Row> {
    let one = |name: &str| json!({"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]});
    let (a, b, c) = (one("a"), one("b"), one("c"));
    let defs = json!({"A": a, "B": b});
    vec![
        (
            "all of two",
            json!({"allOf": [a, b]}),
            &[r#"{"a":1,"b":2}"#],
            &[r#"{"a":1}"#, r#"{"a":1,"b":2,"c":3}"#],
        ),
        (
            "all of two and properties",
            json!({"allOf": [a, b], "properties": {"c": {"type": "null"}}}),
            &[r#"{"a":1,"b":2,"c":null}"#],
            &[r#"{"a":1,"b":2,"d":3}"#],
        ),
        (
            "all of references",
            json!({"$defs": defs, "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}),
            &[r#"{"a":1,"b":2}"#],
            &[r#"{"a":1,"b":2,"c":3}"#],
        ),
        (
            "a reference to another place",
            json!({"components": {"schemas": {"A": a}}, "$ref": "#/components/schemas/A"}),
            &[r#"{"a":1}"#],
            &[r#"{"a":1,"b":2}"#],
        ),
        (
            "a reference and properties",
            json!({"$defs": defs, "$ref": "#/$defs/A", "properties": {"c": {"type": "integer"}}}),
            &[r#"{"a":1,"c":2}"#, r#"{"a":1}"#],
            &[r#"{"a":1,"d":2}"#],
        ),
        (
            "one reference in allOf, as pydantic writes it",
            json!({"$defs": defs, "type": "object", "properties": {"x": {"allOf": [{"$ref": "#/$defs/A"}], "default": {}}}}),
            &[r#"{"x":{"a":1}}"#],
            &[r#"{"x":{"a":1,"b":1}}"#],
        ),
        (
            "alone and in a combination",
            json!({"$defs": defs, "type": "object", "properties": {
                "x": {"$ref": "#/$defs/A"},
                "y": {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]},
            }}),
            &[r#"{"x":{"a":1},"y":{"a":1,"b":2}}"#],
            &[r#"{"x":{"a":1,"b":2}}"#, r#"{"y":{"a":1,"b":2,"c":3}}"#],
        ),
        (
            "any of two",
            json!({"anyOf": [a, b, {"type": "null"}]}),
            &[r#"{"a":1}"#, r#"{"b":1}"#, "null"],
            &[r#"{"a":1,"b":1}"#, r#"{"c":1}"#],
        ),
        (
            "any of two beside properties",
            json!({"type": "object", "properties": {"k": {"type": "integer"}}, "anyOf": [a, b]}),
            &[r#"{"k":0,"a":1}"#, r#"{"b":1}"#],
            &[r#"{"k":0}"#, r#"{"a":1,"c":1}"#],
        ),
        (
            "any of references in all of",
            json!({"$defs": defs, "allOf": [c, {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}]}),
            &[r#"{"c":0,"a":1}"#, r#"{"c":0,"b":1}"#],
            &[r#"{"c":0,"d":1}"#, r#"{"c":0,"a":1,"d":1}"#],
        ),
        (
            "any of what is required",
            json!({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "type": "object",
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            &[r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":1,"b":1}"#],
            &[r#"{"c":1}"#, "{}"],
        ),
        (
            "two groups",
            json!({"allOf": [{"anyOf": [a, b]}, {"anyOf": [c, one("d")]}]}),
            &[r#"{"a":1,"c":1}"#, r#"{"b":1,"d":1}"#],
            &[r#"{"a":1,"c":1,"e":1}"#, r#"{"a":1}"#],
        ),
        (
            "one branch says that it is open",
            json!({"anyOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": true}, b]}),
            &[r#"{"a":1,"z":1}"#, r#"{"b":1}"#],
            &[r#"{"b":1,"z":1}"#],
        ),
        (
            "a combination that says that it is open",
            json!({"allOf": [a, {"properties": {"b": {}}, "additionalProperties": true}]}),
            &[r#"{"a":1,"z":1}"#],
            &[],
        ),
        (
            "a tree",
            json!({"$defs": {"T": {"type": "object", "properties": {"n": {"$ref": "#/$defs/T"}, "v": {"type": "integer"}}}}, "$ref": "#/$defs/T"}),
            &[r#"{"n":{"n":{"v":1}},"v":2}"#],
            &[r#"{"n":{"x":1}}"#],
        ),
        (
            "a tree whose nodes have a base",
            json!({"$defs": {"B": b, "T": {"allOf": [
                {"$ref": "#/$defs/B"}, {"type": "object", "properties": {"n": {"$ref": "#/$defs/T"}}},
            ]}}, "$ref": "#/$defs/T"}),
            &[r#"{"b":1,"n":{"b":2}}"#],
            &[r#"{"b":1,"n":{"b":2,"c":1}}"#, r#"{"b":1,"c":1}"#],
        ),
    ]
}

#[test]
fn closed_objects_reject_unknown_members() {
    let (tokenizer, compiler) = compiler();
    for (label, schema, possible, impossible) in plain().into_iter().chain(combined()) {
        let open = GrammarSource::JsonSchema(schema.clone());
        let closed = open.clone().with_closed_objects();
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let [open, closed] = [open, closed].map(|source| {
            let grammar = compiler.compile(&source);
            grammar.unwrap_or_else(|error| panic!("{label}: {error}"))
        });
        for text in possible {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert!(validator.is_valid(&value), "{label}: {text}");
            assert!(
                is_whole(&tokenizer, open.matcher(), text),
                "{label}: {text}"
            );
            assert!(
                is_whole(&tokenizer, closed.matcher(), text),
                "{label}: {text}"
            );
        }
        for text in impossible {
            assert!(
                !is_whole(&tokenizer, closed.matcher(), text),
                "{label}: {text}"
            );
        }
    }
}

/// JSON without duplicate members.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Once)
    }
}

macro_rules! scalars {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E: Error>(self, _: $type) -> Result<Once, E> {
            Ok(Once)
        })*
    };
}

impl<'de> Visitor<'de> for Once {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names: Vec<String> = Vec::new();
        while let Some(name) = members.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("{name} comes twice")));
            }
            names.push(name);
            members.next_value::<Self>()?;
        }
        Ok(self)
    }
}

#[test]
fn sampled_objects_have_no_duplicate_or_unknown_members() {
    let (tokenizer, compiler) = compiler();
    let labelled = combined().into_iter().chain(plain());
    let labelled = labelled.map(|(label, schema, ..)| (label.to_owned(), schema));
    let mut whole = 0;
    for (label, schema) in labelled.chain(schemas::all()) {
        let source = GrammarSource::JsonSchema(schema.clone()).with_closed_objects();
        let grammar = compiler.compile(&source).expect("a grammar");
        let says_more = schema.to_string().contains("dditionalProperties\":{")
            || schema.to_string().contains("dditionalProperties\":true")
            || !schema.to_string().contains("\"properties\"");
        if says_more || label.contains("pattern") || label.contains("more members") {
            continue;
        }
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        for seed in 0..4 {
            let walk = walk(&tokenizer, grammar.matcher(), &mut rng(seed));
            if !walk.whole || schemas::parse(&walk.text).is_none_or(|value| value.is_err()) {
                continue;
            }
            whole += 1;
            let once: Result<Once, _> = serde_json::from_str(&walk.text);
            let once = once.map(|Once| ()).map_err(|error| error.to_string());
            // An answer that is no object may contain any members.
            let is_object = walk.text.starts_with('{');
            assert!(
                !is_object || once.is_ok(),
                "{label}: {once:?}: {}",
                walk.text
            );
            let value: Value = serde_json::from_str(&walk.text).expect("JSON");
            assert!(validator.is_valid(&value), "{label}: {}", walk.text);
        }
    }
    assert!(whole > 100, "{whole} walks came to an end");
}

#[test]
fn oversized_combinations_are_rejected() {
    let branches: Vec<Value> = (0..2000)
        .map(|i| json!({"properties": {format!("a{i}"): true}}))
        .collect();
    let groups: Vec<Value> = branches
        .chunks(2)
        .map(|pair| json!({"anyOf": pair}))
        .collect();
    let (_, compiler) = compiler();
    let source = GrammarSource::JsonSchema(json!({"allOf": groups})).with_closed_objects();
    let refused = compiler.compile(&source).err().expect("too many names");
    assert!(refused.why.contains("additionalProperties"), "{refused}");
}
