//! Subschemas of a schema, and their paths.

use serde_json::{Map, Value};

/// Keywords whose value maps names to schemas.
pub(super) const OF_NAMED: [&str; 6] = [
    "$defs",
    "definitions",
    "properties",
    "patternProperties",
    "dependentSchemas",
    "dependencies",
];
/// Keywords whose value is a schema or a list of schemas.
pub(super) const OF_SCHEMAS: [&str; 13] = [
    "items",
    "prefixItems",
    "additionalItems",
    "additionalProperties",
    "propertyNames",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
];

/// The direct subschemas of a schema, each with a path step.
pub(super) fn parts(schema: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    schema.iter().flat_map(|(keyword, value)| {
        let named = OF_NAMED.contains(&keyword.as_str());
        let listed = OF_SCHEMAS.contains(&keyword.as_str());
        let parts: Vec<(String, &Value)> = match value {
            Value::Object(entries) if named => entries
                .iter()
                .map(|(name, part)| (format!("{keyword}.{name}"), part))
                .collect(),
            Value::Array(items) if listed => items
                .iter()
                .enumerate()
                .map(|(at, part)| (format!("{keyword}[{at}]"), part))
                .collect(),
            value if listed => vec![(keyword.clone(), value)],
            _ => Vec::new(),
        };
        parts
    })
}

/// Whether the value of this keyword consists of subschemas.
pub(super) fn is_of_schemas(keyword: &str) -> bool {
    OF_NAMED.contains(&keyword) || OF_SCHEMAS.contains(&keyword)
}

/// The path with these steps.
pub(super) fn path(steps: &[String]) -> String {
    steps.join(".")
}
