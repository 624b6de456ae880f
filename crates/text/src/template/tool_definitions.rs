//! Tool definitions with all optional parts, for templates that read those without a test.

use serde_json::{Map, Value, json};

/// Nesting of schemas that are completed.
const DEPTH_MAX: usize = 8;

/// Definitions in OpenAI's shape with a description, parameters, and one type for each property.
pub(super) fn complete_tools(tools: &[Value]) -> Vec<Value> {
    let mut tools = tools.to_vec();
    for tool in &mut tools {
        if let Some(function) = tool.get_mut("function").and_then(Value::as_object_mut) {
            complete_function(function);
        }
    }
    tools
}

fn complete_function(function: &mut Map<String, Value>) {
    fill(function, "description", || json!(""));
    fill(function, "parameters", || json!({}));
    if let Some(parameters) = function
        .get_mut("parameters")
        .and_then(Value::as_object_mut)
    {
        fill(parameters, "type", || json!("object"));
        fill(parameters, "properties", || json!({}));
        complete_properties(parameters, DEPTH_MAX);
    }
}

fn complete_properties(schema: &mut Map<String, Value>, depth: usize) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    let rest = depth.saturating_sub(1);
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        fill(property, "description", || json!(""));
        // Of several types the first that is not null; without a type, a text.
        let types = property.get("type").and_then(Value::as_array);
        let named = types.into_iter().flatten().find(|name| *name != "null");
        if let Some(named) = named.cloned() {
            property.insert("type".to_owned(), named);
        }
        fill(property, "type", || json!("string"));
        if property["type"] == "null" {
            property.insert("type".to_owned(), json!("string"));
        }
        if rest > 0 {
            complete_properties(property, rest);
        }
    }
}

/// Sets a field that is missing or null.
fn fill(object: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_parts_are_filled_and_others_stay() {
        let tools = [
            json!({"type": "function", "function": {"name": "f"}}),
            json!({"type": "function", "function": {"name": "g", "description": "what", "parameters": {
                "type": "object", "properties": {"a": {"type": ["null", "integer"]}, "b": {"type": "null"}, "c": {}},
            }}}),
        ];
        let completed = complete_tools(&tools);
        let expected = json!({"type": "object", "properties": {}});
        assert_eq!(completed[0]["function"]["description"], "");
        assert_eq!(completed[0]["function"]["parameters"], expected);
        let properties = &completed[1]["function"]["parameters"]["properties"];
        let types = ["a", "b", "c"].map(|name| &properties[name]["type"]);
        assert_eq!(types, ["integer", "string", "string"]);
        assert_eq!(completed[1]["function"]["description"], "what");
    }
}
