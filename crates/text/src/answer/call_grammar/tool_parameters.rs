//! Parameters of a tool whose schema lists them.

use super::{GrammarWriter, UnsupportedTool};
use serde_json::{Map, Value};

/// Keywords that constrain nothing.
pub(super) const ANNOTATIONS: [&str; 11] = [
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "strict",
    "$comment",
    "$schema",
    "$id",
];
/// Keywords of an object schema that lists all fields.
const OF_OBJECT: [&str; 6] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "definitions",
];

/// A parameter of a tool.
#[derive(Clone, Debug)]
pub(super) struct ToolParameter {
    pub(super) key: String,
    pub(super) required: bool,
    pub(super) schema: Value,
}

impl ToolParameter {
    /// Whether the schema constrains nothing except the type.
    pub(super) fn is_plain(&self) -> bool {
        says_only(&self.schema, &["type"])
    }
}

impl GrammarWriter<'_> {
    /// Parameters of a tool; `None` where any object is valid.
    pub(super) fn fields(
        &self,
        tool: usize,
    ) -> Result<Option<Vec<ToolParameter>>, UnsupportedTool> {
        let Some(schema) = &self.tools[tool].arguments else {
            return Ok(None);
        };
        of_object(schema)
            .map(Some)
            .map_err(|why| UnsupportedTool { tool, why })
    }

    /// A parameter's schema including the definitions that the schema refers to.
    pub(super) fn standing_alone(
        &self,
        tool: usize,
        field: &ToolParameter,
    ) -> Result<Value, UnsupportedTool> {
        let root = self.tools[tool].arguments.as_ref();
        let alone = root.and_then(|root| with_kept(&field.schema, root));
        alone.ok_or_else(|| self.unwritten(tool, &field.key, "refers to other places than $defs"))
    }

    pub(super) fn unwritten(&self, tool: usize, key: &str, why: &str) -> UnsupportedTool {
        UnsupportedTool {
            tool,
            why: format!("parameters.properties.{key}: {why}"),
        }
    }
}

/// Whether a schema has no constraining keywords except these.
pub(super) fn says_only(schema: &Value, keywords: &[&str]) -> bool {
    match schema {
        Value::Object(schema) => schema
            .keys()
            .all(|key| keywords.contains(&key.as_str()) || ANNOTATIONS.contains(&key.as_str())),
        Value::Bool(allows) => *allows,
        _ => false,
    }
}

/// Fields of an object schema.
pub(super) fn of_object(schema: &Value) -> Result<Vec<ToolParameter>, String> {
    let none = Map::new();
    let known = schema.as_object().unwrap_or(&none);
    let other = known
        .keys()
        .find(|key| !OF_OBJECT.contains(&key.as_str()) && !ANNOTATIONS.contains(&key.as_str()));
    if let Some(other) = other {
        return Err(format!(
            "parameters.{other}: cannot be kept where parameters are written one by one"
        ));
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err("parameters.type: must be object".to_owned());
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.unwrap_or(&none);
    let required = schema.get("required").and_then(Value::as_array);
    let required: Vec<&str> = required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if let Some(missing) = required
        .iter()
        .find(|name| !properties.contains_key(**name))
    {
        return Err(format!(
            "parameters.required: {missing} is none of the properties"
        ));
    }
    let field = |(key, schema): (&String, &Value)| ToolParameter {
        key: key.clone(),
        required: required.contains(&key.as_str()),
        schema: schema.clone(),
    };
    Ok(properties.iter().map(field).collect())
}

/// Part of a schema with the shared definitions; `None` if the part refers to other places.
pub(super) fn with_kept(part: &Value, root: &Value) -> Option<Value> {
    if !refers_to_kept(part) {
        return None;
    }
    let mut part = match part {
        Value::Bool(true) => Value::Object(Map::new()),
        other => other.clone(),
    };
    for kept in ["$defs", "definitions"] {
        if let (Some(value), Some(part)) = (root.get(kept), part.as_object_mut()) {
            part.insert(kept.to_owned(), value.clone());
        }
    }
    Some(part)
}

fn refers_to_kept(part: &Value) -> bool {
    match part {
        Value::Object(entries) => entries.iter().all(|(keyword, value)| match value.as_str() {
            Some(to) if keyword == "$ref" => {
                to.starts_with("#/$defs/") || to.starts_with("#/definitions/")
            }
            _ => refers_to_kept(value),
        }),
        Value::Array(items) => items.iter().all(refers_to_kept),
        _ => true,
    }
}
