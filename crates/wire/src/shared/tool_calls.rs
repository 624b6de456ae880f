//! Tool calls: those of earlier turns in the form that chat templates expect, and the arguments of the model's as an object.

use crate::fields::{self, Fields, JsonObject, JsonType, OrReject, RawJson};
use generate::output::collected::CollectedCall;
use generate::output::custom_input::CustomInput;
use generate::output::event::{ToolCall, ToolCallPart};
use generate::request::PARTS_MAX;
use generate::tools::{OfferedTool, find_offered, input_arguments};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
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
    let calls: Option<Vec<Map<String, Value>>> = calls.and_then(|_| value_of_arguments(raw.get()));
    let calls = calls.or_reject(
        fields,
        &path,
        format_args!("must be a list of at most {PARTS_MAX} objects, nested at most 127 deep"),
    )?;
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
    let function = value_of_arguments::<Map<String, Value>>(raw.get()).or_reject(
        fields,
        format_args!("{path}.function_call"),
        "must be an object with a name and arguments",
    )?;
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
pub(crate) fn parse_arguments(arguments: &mut Value) {
    let written = arguments.as_str().unwrap_or_default();
    if let Some(object) = value_of_arguments(written) {
        *arguments = Value::Object(object);
    }
}

/// The value of arguments in JSON, for a chat template. Integers beyond 64 bits are texts of their digits: as numbers they would be
/// rounded.
pub(crate) fn value_of_arguments<T: DeserializeOwned>(json: &str) -> Option<T> {
    serde_json::from_str(&with_quoted_integers(json)).ok()
}

/// Integers of so many digits have 64 bits.
const I64_DIGITS_MIN: usize = 18;

/// JSON in which integers beyond 64 bits are strings.
fn with_quoted_integers(json: &str) -> Cow<'_, str> {
    let (bytes, mut out, mut copied, mut at) = (json.as_bytes(), String::new(), 0, 0);
    let mut in_string = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'-' | b'0'..=b'9' if !in_string => {
                let rest = &json[at..];
                let is_of_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
                let number = rest.split(|c| !is_of_number(c)).next().unwrap_or(rest);
                let digits = number.strip_prefix('-').unwrap_or(number);
                let is_integer = digits.bytes().all(|digit| digit.is_ascii_digit());
                let is_long = is_integer && digits.len() > I64_DIGITS_MIN;
                if is_long && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    out.extend([&json[copied..at], "\"", number, "\""]);
                    copied = at + number.len();
                }
                at += number.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    if copied == 0 {
        return json.into();
    }
    out.push_str(&json[copied..]);
    out.into()
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
pub(crate) fn without_blanks(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let stays = |c: &char| {
        let stays = in_string || !c.is_ascii_whitespace();
        in_string ^= *c == '"' && !is_escaped;
        is_escaped = in_string && *c == '\\' && !is_escaped;
        stays
    };
    json.chars().filter(stays).collect()
}

/// The open call of each choice, if of a custom tool.
#[derive(Default)]
pub(crate) struct CustomCalls(Vec<Option<CustomCall>>);

#[derive(Clone, Default)]
struct CustomCall {
    decoder: CustomInput,
    /// Input that the last part of the call gave.
    text: String,
}

impl CustomCalls {
    /// No calls so far.
    pub(crate) fn new(choices: usize) -> Self {
        Self(vec![None; choices])
    }

    /// Follows the parts of calls; `tools` are those that the client gave in another form than the model's.
    pub(crate) fn follow(&mut self, tools: &[OfferedTool], call: &ToolCall<'_>) {
        let open = &mut self.0[call.origin.choice];
        if let ToolCallPart::Start { name, .. } = call.part {
            let is_custom = find_offered(tools, name).is_some_and(|tool| tool.is_custom);
            *open = is_custom.then(CustomCall::default);
        }
        if let Some(open) = open {
            open.text.clear();
            if let ToolCallPart::Args(fragment) = call.part {
                open.decoder.take(fragment, &mut open.text);
            }
        }
    }

    /// Input that the last part of a choice's call gave. `None`: the call is not of a custom tool.
    pub(crate) fn new_input(&self, choice: usize) -> Option<&str> {
        self.0[choice].as_ref().map(|call| call.text.as_str())
    }

    /// Whether the call of a custom tool has arguments so far in which no input begins: those of another form are read as a
    /// whole when the call is complete.
    pub(crate) fn has_no_input(&self, choice: usize) -> bool {
        let call = self.0[choice].as_ref();
        call.is_some_and(|call| !call.decoder.has_begun())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_beyond_64_bits_keep_their_digits() {
        for (json, want) in [
            (
                r#"{"a":18446744073709551615,"b":-9223372036854775808}"#,
                None,
            ),
            (
                r#"{"a":18446744073709551616,"b":[-9223372036854775809,1]}"#,
                Some(r#"{"a":"18446744073709551616","b":["-9223372036854775809",1]}"#),
            ),
            (r#"{"a":"\\\"18446744073709551616"}"#, None),
            (r#"{"a":18446744073709551616.5,"b":1e30,"é":0}"#, None),
            ("99999999999999999999", Some(r#""99999999999999999999""#)),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(with_quoted_integers(json), want.unwrap_or(json), "{json}");
        }
    }

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
