//! Normalization of a client's schema, before anything else reads the schema: spellings that llguidance and this crate's other
//! modules do not read become equal ones that they do.
//!
//! - `pattern` and the names of `patternProperties`, which are regular expressions of ECMA-262, are written in Rust's syntax
//!   ([`ecma_pattern`]);
//! - references by name (`#name`, `other.json`) become references by place ([`schema_identifiers`]);
//! - references with escapes (`~1`, `~0`, `%20`) lead to places without escapes ([`schema_references`]);
//! - counts that are written as floats, `1000.0`, are integers.

mod ecma_pattern;
mod schema_identifiers;
mod schema_references;

use super::error::GrammarError;
use super::schema_parts::{OF_DATA, OF_NAMED};
use serde_json::{Map, Value, json};

pub(super) use schema_references::target;

/// Keywords that count something.
const COUNTS: [&str; 8] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
];

/// The normalized schema.
///
/// # Errors
/// References with escapes lead to parts that are too large to copy.
pub(super) fn normalized(root: &Map<String, Value>) -> Result<Map<String, Value>, GrammarError> {
    schema_references::plain(schema_identifiers::by_place(schema(root)))
}

fn schema(entries: &Map<String, Value>) -> Map<String, Value> {
    let entries = entries.iter();
    let normalized = entries.map(|(keyword, value)| (keyword.clone(), parts(keyword, value)));
    normalized.collect()
}

fn part(value: &Value) -> Value {
    match value {
        Value::Object(entries) => Value::Object(schema(entries)),
        Value::Array(list) => list.iter().map(part).collect(),
        other => other.clone(),
    }
}

/// The value of a keyword. A reference may lead to a schema below any keyword, except data.
fn parts(keyword: &str, value: &Value) -> Value {
    match value {
        value if OF_DATA.contains(&keyword) => value.clone(),
        Value::Object(named) if OF_NAMED.contains(&keyword) => {
            let named = named.iter().map(|(name, value)| match keyword {
                "patternProperties" => (ecma_pattern::in_rust(name), part(value)),
                _ => (name.clone(), part(value)),
            });
            Value::Object(named.collect())
        }
        Value::String(pattern) if keyword == "pattern" => ecma_pattern::in_rust(pattern).into(),
        Value::Number(_) if COUNTS.contains(&keyword) => whole(value),
        value => part(value),
    }
}

/// The longest text or list that the library can count.
const COUNT_MAX: u64 = u32::MAX as u64;

/// A count as an integer, at most [`COUNT_MAX`].
fn whole(value: &Value) -> Value {
    match value.as_f64() {
        Some(count) if count >= 0.0 && count.fract() == 0.0 => {
            json!((count as u64).min(COUNT_MAX))
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_integers() {
        for (count, expected) in [
            (json!(1000.0), json!(1000)),
            (json!(1000.5), json!(1000.5)),
            (json!(-1.0), json!(-1.0)),
            (json!(7), json!(7)),
            (json!(u64::MAX), json!(COUNT_MAX)),
            (json!(9_007_199_254_740_991_u64), json!(COUNT_MAX)),
            (json!(1e300), json!(COUNT_MAX)),
        ] {
            let schema = json!({"items": [{"maxLength": count}]});
            let ours = normalized(schema.as_object().expect("an object")).expect("few copies");
            assert_eq!(
                ours["items"][0]["maxLength"], expected,
                "{count} becomes {expected}"
            );
        }
    }

    #[test]
    fn data_and_names_stay_as_written() {
        let schema = json!({
            "const": {"pattern": "[^]", "maxLength": 3.0}, "default": {"$ref": "#/$defs/a~1b"},
            "properties": {"pattern": {"const": "[^]"}, "maxLength": true, "$ref": {"type": "null"}},
        });
        let ours = normalized(schema.as_object().expect("an object")).expect("few copies");
        assert_eq!(Value::Object(ours), schema);
    }
}
