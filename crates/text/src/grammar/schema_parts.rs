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

/// Keywords whose value is data.
pub(super) const OF_DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Calls `visit` with the objects directly below a schema that may be schemas: a reference may lead below any keyword, except data.
pub(super) fn visit_parts(
    schema: &mut Map<String, Value>,
    visit: &mut dyn FnMut(&mut Map<String, Value>),
) {
    for (keyword, value) in schema {
        let below: Vec<&mut Value> = match value {
            _ if OF_DATA.contains(&keyword.as_str()) => Vec::new(),
            Value::Object(named) if OF_NAMED.contains(&keyword.as_str()) => {
                named.values_mut().collect()
            }
            Value::Array(list) => list.iter_mut().collect(),
            value => vec![value],
        };
        for part in below.into_iter().filter_map(Value::as_object_mut) {
            visit(part);
        }
    }
}

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

/// The path with these steps.
pub(super) fn path(steps: &[String]) -> String {
    steps.join(".")
}
