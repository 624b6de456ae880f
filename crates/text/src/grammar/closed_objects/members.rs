//! The members that an object may have, as far as a schema names them.

use serde_json::{Map, Value, json};

/// Which members an object may have as far as a schema, or several together, say.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Names, in the order in which they are written.
    pub(super) names: Map<String, Value>,
    pub(super) patterns: Map<String, Value>,
    /// Parts that have `properties`.
    pub(super) parts: usize,
    /// It is said which others there may be, or not to be known here.
    pub(super) is_said: bool,
}

impl Known {
    /// A schema that refuses other members than these.
    pub(super) fn closer(&self) -> Value {
        let mut closer = Map::new();
        close(&mut closer, self);
        Value::Object(closer)
    }
}

/// Refuses other members than these and those that the schema names itself.
pub(super) fn close(schema: &mut Map<String, Value>, known: &Known) {
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

/// What a schema says of an object without its branches.
pub(super) fn own(part: &Map<String, Value>) -> Known {
    let members = |keyword| part.get(keyword).and_then(Value::as_object);
    let keys = |members: &Map<String, Value>| -> Map<String, Value> {
        let keys = members.keys().map(|key| (key.clone(), Value::Bool(true)));
        keys.collect()
    };
    let mut names = members("properties").map(keys).unwrap_or_default();
    let least = part.get("minProperties").and_then(Value::as_u64);
    let is_said = ["additionalProperties", "unevaluatedProperties"]
        .into_iter()
        .any(|keyword| part.contains_key(keyword));
    let is_said = is_said || least.is_some_and(|least| least > names.len() as u64);
    let required = part.get("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        names.entry(name).or_insert(Value::Bool(true));
    }
    Known {
        names,
        patterns: members("patternProperties").map(keys).unwrap_or_default(),
        parts: usize::from(part.contains_key("properties")),
        is_said,
    }
}
