//! Members of an object that a schema names.

use serde_json::{Map, Value, json};

/// Members of an object that one or several schemas name.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownMembers {
    /// Names in order of occurrence.
    pub(super) names: Map<String, Value>,
    pub(super) patterns: Map<String, Value>,
    /// Number of parts that have `properties`.
    pub(super) parts: usize,
    /// Whether other members are already allowed or forbidden explicitly, or are unknown.
    pub(super) is_said: bool,
}

impl KnownMembers {
    /// A schema that rejects all other members.
    pub(super) fn closer(&self) -> Value {
        let mut closer = Map::new();
        close(&mut closer, self);
        Value::Object(closer)
    }
}

/// Rejects members that neither `known` nor the schema names.
pub(super) fn close(schema: &mut Map<String, Value>, known: &KnownMembers) {
    for (keyword, known) in [
        ("properties", &known.names),
        ("patternProperties", &known.patterns),
    ] {
        if known.is_empty() && keyword == "patternProperties" {
            continue;
        }
        let own = schema.entry(keyword).or_insert_with(|| json!({}));
        let Some(own) = own.as_object_mut() else {
            continue;
        };
        for name in known.keys() {
            own.entry(name.clone()).or_insert(Value::Bool(true));
        }
    }
    schema.insert("additionalProperties".into(), Value::Bool(false));
}

/// Keywords that decide about other members, or may name some under a condition.
const DECIDING: [&str; 5] = [
    "additionalProperties",
    "unevaluatedProperties",
    "then",
    "else",
    "dependentSchemas",
];

fn has_dependent_schema(part: &Map<String, Value>) -> bool {
    let all = part.get("dependencies").and_then(Value::as_object);
    let mut all = all.into_iter().flat_map(Map::values);
    all.any(Value::is_object)
}

/// Members that a schema names outside of branches.
pub(super) fn own(part: &Map<String, Value>) -> KnownMembers {
    let members = |keyword| part.get(keyword).and_then(Value::as_object);
    let keys = |members: &Map<String, Value>| -> Map<String, Value> {
        let keys = members.keys().map(|key| (key.clone(), Value::Bool(true)));
        keys.collect()
    };
    let mut names = members("properties").map(keys).unwrap_or_default();
    let least = part.get("minProperties").and_then(Value::as_u64);
    let is_said = DECIDING
        .into_iter()
        .any(|keyword| part.contains_key(keyword));
    let is_said = is_said || has_dependent_schema(part);
    let is_said = is_said || least.is_some_and(|least| least > names.len() as u64);
    let required = part.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        names.entry(name).or_insert(Value::Bool(true));
    }
    KnownMembers {
        names,
        patterns: members("patternProperties").map(keys).unwrap_or_default(),
        parts: usize::from(part.contains_key("properties")),
        is_said,
    }
}
