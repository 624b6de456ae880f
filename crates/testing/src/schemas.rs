//! JSON Schemas of many kinds: 25 values, each in 8 places, and a few as people write them.

use serde_json::{Value, json};

/// All of them, each with its label.
pub fn all() -> Vec<(String, Value)> {
    let mut schemas = Vec::new();
    for (value, schema) in plain().into_iter().chain(made()) {
        for (place, schema) in places(&schema) {
            schemas.push((format!("{value}, {place}"), schema));
        }
    }
    let written = written();
    schemas.extend(written.map(|(label, schema)| (label.to_owned(), schema)));
    schemas
}

/// Value of a text as JSON; `None` where it has a number that is greater than a double can be,
/// which JSON allows and few readers take.
pub fn parse(text: &str) -> Option<Result<Value, serde_json::Error>> {
    match serde_json::from_str(text) {
        Err(error) if error.to_string().starts_with("number out of range") => None,
        read => Some(read),
    }
}

/// Values of one type.
fn plain() -> [(&'static str, Value); 12] {
    [
        ("null", json!({"type": "null"})),
        ("boolean", json!({"type": "boolean"})),
        ("integer", json!({"type": "integer"})),
        (
            "integers in a range",
            json!({"type": "integer", "minimum": -20, "maximum": 144}),
        ),
        (
            "integers between",
            json!({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}),
        ),
        (
            "multiples",
            json!({"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 1000}),
        ),
        ("number", json!({"type": "number"})),
        (
            "numbers in a range",
            json!({"type": "number", "minimum": 0.5, "maximum": 2.25}),
        ),
        ("short string", json!({"type": "string", "maxLength": 8})),
        (
            "string of a length",
            json!({"type": "string", "minLength": 2, "maxLength": 5}),
        ),
        (
            "pattern",
            json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
        ),
        (
            "pattern inside",
            json!({"type": "string", "pattern": "(foo|ba+r)", "maxLength": 12}),
        ),
    ]
}

/// Formats, and what is made of other values.
fn made() -> [(&'static str, Value); 13] {
    [
        ("date", json!({"type": "string", "format": "date"})),
        ("uuid", json!({"type": "string", "format": "uuid"})),
        ("ipv4", json!({"type": "string", "format": "ipv4"})),
        (
            "enum of strings",
            json!({"enum": ["red", "say \"no\"", "grün\n", "\\"]}),
        ),
        (
            "enum of anything",
            json!({"enum": [null, 7, "7", [1, 2], {"a": true}, 1.5]}),
        ),
        ("const", json!({"const": {"kind": "circle", "r": 3}})),
        (
            "two types",
            json!({"type": ["string", "null"], "maxLength": 6}),
        ),
        (
            "union",
            json!({"anyOf": [{"type": "integer"}, {"enum": ["none", "all"]}]}),
        ),
        (
            "array",
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 4}),
        ),
        (
            "tuple",
            json!({"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "null"}], "items": false, "minItems": 2}),
        ),
        ("empty array", json!({"type": "array", "maxItems": 0})),
        (
            "map",
            json!({"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2}),
        ),
        (
            "disjoint",
            json!({"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]}),
        ),
    ]
}

fn places(value: &Value) -> [(&'static str, Value); 8] {
    let pair = |required: Value| {
        json!({
            "type": "object",
            "properties": {"first": value, "second": {"type": "boolean"}},
            "required": required,
            "additionalProperties": false
        })
    };
    [
        ("alone", value.clone()),
        ("required", pair(json!(["first", "second"]))),
        ("optional", pair(json!(["second"]))),
        (
            "within",
            json!({
                "type": "object",
                "properties": {"outer": pair(json!(["first"])), "n": {"type": "integer"}},
                "required": ["outer"],
                "additionalProperties": false
            }),
        ),
        (
            "in a list",
            json!({"type": "array", "items": value, "minItems": 1, "maxItems": 3}),
        ),
        (
            "referred to",
            json!({
                "$defs": {"it": value},
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/it"}, "b": {"type": "array", "items": {"$ref": "#/$defs/it"}, "maxItems": 2}},
                "required": ["a", "b"],
                "additionalProperties": false
            }),
        ),
        (
            "or something else",
            json!({"anyOf": [
                {"type": "object", "properties": {"it": value}, "required": ["it"], "additionalProperties": false},
                {"type": "object", "properties": {"error": {"enum": ["none", "many"]}}, "required": ["error"], "additionalProperties": false}
            ]}),
        ),
        (
            "by name",
            json!({
                "type": "object",
                "patternProperties": {"^k[0-9]$": value},
                "additionalProperties": false
            }),
        ),
    ]
}

fn written() -> [(&'static str, Value); 6] {
    [
        (
            "a list that goes on",
            json!({
                "$ref": "#/$defs/node",
                "$defs": {"node": {
                    "type": "object",
                    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    "required": ["value", "next"],
                    "additionalProperties": false
                }}
            }),
        ),
        (
            "a tree, older words",
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"tree": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": 4}, "of": {"type": "array", "items": {"$ref": "#/definitions/tree"}, "maxItems": 1}},
                    "required": ["name", "of"],
                    "additionalProperties": false
                }},
                "$ref": "#/definitions/tree"
            }),
        ),
        (
            "all of",
            json!({"allOf": [
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]},
            {"properties": {"a": {"maximum": 9}, "b": {"const": "x"}}, "required": ["b"]}
        ], "maxProperties": 2}),
        ),
        (
            "a person",
            json!({
                "title": "Person", "description": "as pydantic writes it",
                "type": "object",
                "properties": {
                    "name": {"title": "Name", "type": "string", "maxLength": 10},
                    "age": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": null},
                    "roles": {"type": "array", "items": {"enum": ["admin", "user"], "type": "string"}, "maxItems": 2}
                },
                "required": ["name", "roles"],
                "additionalProperties": false
            }),
        ),
        (
            "anything called an object",
            json!({"type": "object", "maxProperties": 1}),
        ),
        (
            "a true schema",
            json!({"type": "object", "properties": {"any": true}, "required": ["any"], "additionalProperties": false}),
        ),
    ]
}
