//! Tool calls: those of earlier turns in the form that chat templates expect, and the arguments of the model's as an object.

use crate::fields::{self, Fields, JsonObject, JsonType, RawJson};
use generate::offered_tools::input_arguments;
use generate::output::collected::CollectedCall;
use generate::request::PARTS_MAX;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use text::INVALID_ARGUMENTS;

/// Parses `tool_calls` of a message; errors are recorded in `fields`. An empty list counts as absent.
pub(super) fn earlier_calls(
    fields: &mut Fields<'_>,
    path: &str,
    raw: RawJson<'_>,
) -> Option<Value> {
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

/// Tool-call arguments as an object on one line, because frames end at line ends.
pub(crate) fn tool_input(call: &CollectedCall) -> Box<RawValue> {
    let arguments = &call.arguments;
    // Raw values keep the spelling of numbers.
    let is_object = serde_json::from_str::<HashMap<String, &RawValue>>(arguments).is_ok();
    let text = if is_object {
        without_blanks(arguments)
    } else {
        json!({ INVALID_ARGUMENTS: arguments }).to_string()
    };
    RawValue::from_string(text).unwrap_or_default()
}

/// JSON without insignificant whitespace.
fn without_blanks(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let stays = |c: &char| {
        let stays = in_string || !c.is_ascii_whitespace();
        in_string ^= *c == '"' && !is_escaped;
        is_escaped = in_string && *c == '\\' && !is_escaped;
        stays
    };
    json.chars().filter(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_input_is_an_object_on_one_line() {
        for (arguments, want) in [
            ("{}", "{}"),
            (
                "{\n \"a b\" :\t[1.50, 1e999]\r\n}",
                "{\"a b\":[1.50,1e999]}",
            ),
            (
                "{\"a\": \"x \\\" y \\\\\", \"b\": 1}",
                "{\"a\":\"x \\\" y \\\\\",\"b\":1}",
            ),
            ("{\"a\":", "{\"INVALID_JSON\":\"{\\\"a\\\":\"}"),
            ("[1]", "{\"INVALID_JSON\":\"[1]\"}"),
            ("", "{\"INVALID_JSON\":\"\"}"),
        ] {
            let call = CollectedCall {
                id: String::new(),
                name: String::new(),
                arguments: arguments.to_owned(),
            };
            assert_eq!(tool_input(&call).get(), want, "{arguments}");
        }
    }
}
