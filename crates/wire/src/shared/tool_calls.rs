//! Tool calls of earlier turns, in the form that chat templates expect.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::offered_tools::input_arguments;
use generate::request::PARTS_MAX;
use serde_json::{Map, Value, json};

/// Parses `tool_calls` of a message; errors are recorded in `fields`. An empty list counts as absent.
pub(super) fn tool_calls(fields: &mut Fields<'_>, path: &str, raw: RawJson<'_>) -> Option<Value> {
    let path = format!("{path}.tool_calls");
    let is_object = |call: &RawJson<'_>| fields::json_type(*call) == JsonType::Object;
    let calls = fields::as_list(raw, PARTS_MAX).filter(|calls| calls.iter().all(is_object));
    let calls: Option<Vec<Map<String, Value>>> = calls.and_then(|_| fields::parse_value(raw));
    let Some(calls) = calls else {
        fields.reject(
            path,
            format!("must be a list of at most {PARTS_MAX} objects"),
        );
        return None;
    };
    let calls = calls.into_iter().enumerate();
    let calls: Vec<Value> = calls
        .filter_map(|(i, call)| function_call(fields, &format!("{path}[{i}]"), call))
        .collect();
    (!calls.is_empty()).then_some(Value::Array(calls))
}

/// Parses `function_call` of a message, the field before `tool_calls`.
pub(super) fn former_call(
    fields: &mut Fields<'_>,
    path: &str,
    object: &JsonObject<'_>,
) -> Option<Value> {
    let raw = object.get("function_call")?;
    let Some(function) = fields::parse_value::<Map<String, Value>>(raw) else {
        fields.reject(
            format!("{path}.function_call"),
            "must be an object with a name and arguments",
        );
        return None;
    };
    let call = Map::from_iter([("function".to_owned(), Value::Object(function))]);
    let call = function_call(fields, &format!("{path}.function_call"), call)?;
    Some(json!([call]))
}

/// A call of a function. The call of a custom tool has a text instead of arguments.
fn function_call(
    fields: &mut Fields<'_>,
    path: &str,
    mut call: Map<String, Value>,
) -> Option<Value> {
    if let Some(Value::Object(custom)) = call.get("custom") {
        let input = custom.get("input").and_then(Value::as_str);
        let arguments = input_arguments(input.unwrap_or_default());
        let function = json!({"name": custom.get("name"), "arguments": arguments});
        call.insert("function".to_owned(), function);
        call.shift_remove("custom");
    }
    let function = call.get_mut("function").and_then(Value::as_object_mut);
    let Some(function) =
        function.filter(|function| function.get("name").is_some_and(Value::is_string))
    else {
        fields.reject(format!("{path}.function.name"), "must be a string");
        return None;
    };
    if let Some(arguments) = function.get_mut("arguments") {
        parse_arguments(arguments);
    }
    call.insert("type".to_owned(), json!("function"));
    Some(Value::Object(call))
}

/// Parses a string of JSON into the object that chat templates expect. Other arguments are fitted to the template later.
fn parse_arguments(arguments: &mut Value) {
    let written = arguments.as_str().unwrap_or_default();
    if let Ok(object) = serde_json::from_str::<Map<String, Value>>(written) {
        *arguments = Value::Object(object);
    }
}
