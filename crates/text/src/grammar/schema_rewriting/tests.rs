//! The rewritten schema and the original have the same valid values.

use super::negation::{EXCLUDED_CHARS_MAX, complement};
use super::{REWRITTEN_PARTS_MAX, rewritten, values_in};
use serde_json::{Map, Value, json};

const REWRITTEN: [&str; 10] = [
    "not",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "contains",
    "uniqueItems",
];

fn object(schema: &Value) -> Map<String, Value> {
    schema.as_object().cloned().unwrap()
}

/// Whether a keyword is left that a grammar cannot state. Properties of such a name do not count.
fn is_left(schema: &Value) -> bool {
    let Value::Object(entries) = schema else {
        return schema
            .as_array()
            .is_some_and(|items| items.iter().any(is_left));
    };
    entries
        .iter()
        .any(|(keyword, value)| match keyword.as_str() {
            "properties" | "$defs" => value.as_object().unwrap().values().any(is_left),
            "enum" | "const" => false,
            keyword => REWRITTEN.contains(&keyword) || is_left(value),
        })
}

/// Values of all types, and objects with all combinations of a few members.
fn values() -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!(false),
        json!(-1),
        json!(0),
        json!(1),
        json!(1.5),
        json!(2),
        json!(7),
        json!(""),
        json!("a"),
        json!("b"),
        json!("ab"),
        json!("abc"),
        json!("b\n"),
        json!("é"),
        json!("\"a\""),
        json!([]),
        json!([1]),
        json!([1, 1]),
        json!([1, 2, 3]),
        json!(["a"]),
    ];
    let members = [
        ("a", vec![json!(1), json!("x"), json!(null)]),
        ("b", vec![json!(1), json!("ab")]),
        ("ab", vec![json!(true)]),
    ];
    let mut objects = vec![Map::new()];
    for (name, choices) in members {
        for at in 0..objects.len() {
            for choice in &choices {
                let mut more = objects[at].clone();
                more.insert(name.to_owned(), choice.clone());
                objects.push(more);
            }
        }
    }
    values.extend(objects.into_iter().map(Value::Object));
    values
}

fn schemas() -> Vec<Value> {
    let a1 = json!({"properties": {"a": {"const": 1}}});
    let ab = json!({"properties": {"a": {"type": "string"}, "b": {"type": "number"}}});
    vec![
        json!({"not": {}}),
        json!({"not": false}),
        json!({"not": {"not": {"type": "string", "pattern": "a"}}}),
        json!({"not": {"type": "null"}}),
        json!({"not": {"type": ["object", "number", "array"]}, "description": "x"}),
        json!({"not": {"const": 1}}),
        json!({"not": {"enum": [1, 2, "a", "ab", null, true]}}),
        json!({"not": {"enum": [true, false]}}),
        json!({"type": "string", "not": {"enum": ["", "b\n", "é", "\"a\""]}}),
        json!({"not": {"required": ["a"]}}),
        json!({"not": {"required": ["a", "b"]}, "type": "object"}),
        json!({"not": {"properties": {"a": {"type": "string"}, "b": {}}}}),
        json!({"not": {"properties": {"a": {"const": 1}}, "required": ["a"], "title": "t"}}),
        json!({"not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}, {"type": "string"}]}}),
        json!({"not": {"allOf": [{"required": ["a"]}, {"properties": {"b": {"const": 1}}}]}}),
        json!({"not": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["ab"]}]}}),
        json!({"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"minLength": 2, "maxProperties": 1}}}),
        json!({"not": {"minimum": 1}}),
        json!({"not": {"maximum": 1, "minLength": 1, "minItems": 1, "minProperties": 1}}),
        json!({"not": {"exclusiveMinimum": 1}}),
        json!({"not": {"exclusiveMaximum": 1, "maxLength": 1, "maxItems": 1, "maxProperties": 1}}),
        json!({"not": {"minLength": 0, "maxItems": 2}}),
        json!({"properties": {"a": {"not": {"type": "null"}}, "not": {"not": {}}}, "items": {"not": {"const": 1}}}),
        json!({"if": a1, "then": {"required": ["b"]}}),
        json!({"if": a1, "else": {"required": ["ab"]}}),
        json!({"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["ab"]}}),
        json!({"if": a1, "then": {"if": {"required": ["b"]}, "then": {"required": ["ab"]}}}),
        json!({"if": {"not": {"required": ["a"]}}, "then": {"not": {"required": ["b"]}}}),
        json!({"if": a1}),
        json!({"then": {"required": ["b"]}, "else": false}),
        json!({"dependencies": {"a": ["b", "ab"], "b": {"properties": {"ab": {"const": false}}}, "ab": true}}),
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["a"], "not": {"required": ["ab"]}}}}),
        json!({"propertyNames": {"pattern": "^a"}}),
        json!({"propertyNames": {"type": "string", "maxLength": 1}, "properties": ab["properties"]}),
        json!({"propertyNames": {"enum": ["a", "ab", 7]}}),
        json!({"propertyNames": {"$ref": "#/$defs/name"}, "$defs": {"name": {"const": "b", "title": "n"}}}),
        json!({"propertyNames": {"not": {"const": "a"}}}),
        json!({"propertyNames": {"not": {"enum": ["b", "ab"]}}, "type": "object"}),
        json!({"propertyNames": false}),
        json!({"propertyNames": {"description": "any"}}),
        json!({"type": "array", "uniqueItems": true, "maxItems": 1}),
        json!({"allOf": [{"not": {"required": ["a"]}}], "not": {"required": ["b"]}}),
    ]
}

#[test]
fn rewritten_schemas_have_the_same_valid_values() {
    let values = values();
    for mut schema in schemas() {
        // Later drafts do not know `dependencies`.
        if schema.get("dependencies").is_some() {
            schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        }
        let ours = Value::Object(rewritten(&object(&schema)));
        assert!(!is_left(&ours), "{schema} is {ours}");
        let before = jsonschema::validator_for(&schema).unwrap();
        let after = jsonschema::validator_for(&ours).unwrap();
        for value in &values {
            let (before, after) = (before.is_valid(value), after.is_valid(value));
            assert_eq!(before, after, "{value} under {schema}, rewritten {ours}");
        }
    }
}

#[test]
fn keywords_without_an_equal_form_stay_as_written() {
    for schema in [
        json!({"not": {"pattern": "a"}}),
        json!({"not": {"type": "integer"}}),
        json!({"not": {"items": {"type": "string"}}}),
        json!({"not": {"const": [1]}}),
        json!({"not": {"properties": {"a": {"multipleOf": 2}}}}),
        json!({"not": {"$ref": "#"}}),
        json!({"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}}),
        json!({"if": {"pattern": "a"}, "then": {"type": "string"}, "else": false}),
        json!({"propertyNames": {"format": "email"}}),
        json!({"contains": {"const": 1}, "uniqueItems": true}),
        json!({"not": {"enum": ["x".repeat(EXCLUDED_CHARS_MAX + 1)]}}),
        // A draft without the keyword ignores it.
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "if": {}, "then": false, "propertyNames": false}),
    ] {
        assert_eq!(Value::Object(rewritten(&object(&schema))), schema);
    }
}

/// Each definition is negated twice in the one before.
#[test]
fn copies_are_bounded() {
    let mut defined = Map::new();
    for i in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
        let pair = json!({"properties": {"a": next, "b": next}});
        defined.insert(format!("d{i}"), pair);
    }
    defined.insert("d30".to_owned(), json!({"type": "null"}));
    let schema = json!({"$defs": defined, "not": {"$ref": "#/$defs/d0"}});
    let ours = Value::Object(rewritten(&object(&schema)));
    assert_eq!(ours, schema);
    let nested = (0..8).fold(
        json!({"required": ["a"]}),
        |inner, _| json!({"if": inner, "then": inner, "else": inner}),
    );
    let ours = Value::Object(rewritten(&object(&json!({"not": {"not": nested}}))));
    assert!(values_in(&ours) <= 8 * REWRITTEN_PARTS_MAX + values_in(&nested));
}

#[test]
fn complement_has_all_other_texts() {
    let texts = [
        "", "a", "b", "ab", "abc", "abd", "ba", "a.", "\u{e9}", "\n", "abab",
    ];
    for excluded in [
        &texts[..1],
        &texts[1..2],
        &texts[1..5],
        &texts[3..9],
        &texts[..],
    ] {
        let regex = complement(excluded).unwrap();
        let regex = regex_automata::meta::Regex::new(&regex).unwrap();
        for text in texts {
            assert_eq!(
                regex.is_match(text),
                !excluded.contains(&text),
                "{text:?} beside {excluded:?}"
            );
        }
    }
}
