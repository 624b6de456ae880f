//! Example calls in each family's syntax.

use super::super::{jinja_value, python_json};
use crate::ToolFamily;
use serde_json::{Map, Value};

/// Name and arguments of a call.
pub(super) type Call<'a> = (&'a str, &'a Map<String, Value>);

/// Writes the calls of one answer in the syntax that the family's parser reads.
pub(super) fn calls(family: ToolFamily, calls: &[Call<'_>]) -> String {
    let each = |one: fn(Call<'_>) -> String, between: &str| {
        let each: Vec<String> = calls.iter().map(|&call| one(call)).collect();
        each.join(between)
    };
    match family {
        ToolFamily::Hermes => each(hermes, "\n"),
        ToolFamily::Granite => format!("<|tool_call|>{}", list(calls)),
        ToolFamily::Qwen3Coder => each(qwen3_coder, "\n"),
        ToolFamily::Llama3 => each(llama3, "; "),
        ToolFamily::Llama4 => format!("[{}]", each(llama4, ", ")),
        ToolFamily::Mistral => format!("[TOOL_CALLS]{}", list(calls)),
        ToolFamily::Phi4 => format!("<|tool_call|>{}<|/tool_call|>", list(calls)),
        ToolFamily::DeepSeek => {
            let calls = each(deep_seek, "");
            format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
        }
        ToolFamily::KimiK2 => {
            let calls = each(kimi_k2, "");
            format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>")
        }
        ToolFamily::Glm => each(glm, "\n"),
        ToolFamily::MiniMax => {
            let calls = each(mini_max, "\n");
            format!("<minimax:tool_call>\n{calls}\n</minimax:tool_call>")
        }
        ToolFamily::Gemma => each(gemma, "\n"),
        ToolFamily::Json | ToolFamily::None | ToolFamily::Harmony => match calls {
            [one] => object(*one, "arguments"),
            calls => list(calls),
        },
    }
}

/// Writes JSON as chat templates do.
pub(in crate::template) fn json(value: &Value) -> String {
    let style = python_json::DumpsStyle {
        ensure_ascii: false,
        indent: None,
        separators: None,
        sort_keys: false,
    };
    // A value that was parsed from JSON can be written as JSON, within the size of a request body.
    python_json::dumps(&jinja_value::from_json(value), &style).unwrap_or_default()
}

fn arguments(call: Call<'_>) -> String {
    json(&Value::Object(call.1.clone()))
}

fn object(call: Call<'_>, named: &str) -> String {
    let name = json(&Value::from(call.0));
    format!("{{\"name\": {name}, \"{named}\": {}}}", arguments(call))
}

fn list(calls: &[Call<'_>]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .map(|&call| object(call, "arguments"))
        .collect();
    format!("[{}]", calls.join(", "))
}

fn hermes(call: Call<'_>) -> String {
    format!("<tool_call>\n{}\n</tool_call>", object(call, "arguments"))
}

/// A code fence: Gemma 3 has no call syntax.
fn gemma(call: Call<'_>) -> String {
    format!("```json\n{}\n```", object(call, "arguments"))
}

fn llama3(call: Call<'_>) -> String {
    object(call, "parameters")
}

fn llama4((name, arguments): Call<'_>) -> String {
    let literal = |value: &Value| match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        value => json(value),
    };
    let arguments = arguments
        .iter()
        .map(|(key, value)| format!("{key}={}", literal(value)));
    format!("{name}({})", arguments.collect::<Vec<_>>().join(", "))
}

fn deep_seek(call: Call<'_>) -> String {
    format!(
        "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
        call.0,
        arguments(call)
    )
}

fn kimi_k2(call: Call<'_>) -> String {
    format!(
        "<|tool_call_begin|>functions.{}:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
        call.0,
        arguments(call)
    )
}

fn qwen3_coder((name, arguments): Call<'_>) -> String {
    let parameters = parameters(arguments, |key, value| {
        format!("<parameter={key}>\n{value}\n</parameter>\n")
    });
    format!("<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>")
}

fn glm((name, arguments): Call<'_>) -> String {
    let parameters = parameters(arguments, |key, value| {
        format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n")
    });
    format!("<tool_call>{name}\n{parameters}</tool_call>")
}

fn mini_max((name, arguments): Call<'_>) -> String {
    let parameters = parameters(arguments, |key, value| {
        format!("<parameter name=\"{key}\">{value}</parameter>\n")
    });
    format!("<invoke name=\"{name}\">\n{parameters}</invoke>")
}

/// Parameters in tags: strings unescaped, other values as JSON.
fn parameters(arguments: &Map<String, Value>, tagged: impl Fn(&str, &str) -> String) -> String {
    let tagged = arguments.iter().map(|(key, value)| match value {
        Value::String(text) => tagged(key, text),
        value => tagged(key, &json(value)),
    });
    tagged.collect()
}
