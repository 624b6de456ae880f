//! Tools for templates without support for tools, inserted into the conversation's text as llama.cpp does.
//!
//! Tool definitions and instructions go into the system message, calls of earlier turns into the assistant's
//! text, results into the user's. Calls are written in the syntax of the family whose parser reads the answer
//!, so that the model is shown the syntax that is parsed.

#[cfg(test)]
mod tests;

use super::capabilities::{GenericPlace, ToolSupport};
use super::message::Message;
use super::python_json;
use crate::{Tokenizer, ToolFamily};
use serde_json::{Map, Value, json};

/// Tools of a request for insertion into a conversation.
#[derive(Clone, Copy, Debug)]
pub struct GenericTools<'a> {
    /// How the model receives tool definitions.
    pub support: ToolSupport,
    /// The family whose parser reads the answer.
    pub family: ToolFamily,
    /// Tool definitions in OpenAI's shape.
    pub tools: &'a [Value],
    /// Whether at most one call is wanted.
    pub once: bool,
}

/// Separator between a message's own text and inserted text.
const GAP: &str = "\n\n";

impl GenericTools<'_> {
    /// Inserts the tools into the conversation, unless the template renders tools. Message content must
    /// already be [escaped](Message::with_escaped_text); tool definitions are escaped here.
    #[must_use]
    pub fn add_tools(&self, messages: Vec<Message>, tokenizer: &Tokenizer) -> Vec<Message> {
        match self.support {
            ToolSupport::Template | ToolSupport::None => messages,
            ToolSupport::SystemMessage => self.beside_system(messages, tokenizer),
            ToolSupport::Generic(place) => {
                let mut messages = in_text(self.family, messages);
                if !self.tools.is_empty() {
                    put_first(&mut messages, place, &self.prompt(tokenizer));
                }
                messages
            }
        }
    }

    /// Earlier calls and results as text.
    pub(super) fn calls_in_text(&self, messages: Vec<Message>) -> Vec<Message> {
        in_text(self.family, messages)
    }

    /// Adds the field `tools` to the system message, as JSON.
    fn beside_system(&self, mut messages: Vec<Message>, tokenizer: &Tokenizer) -> Vec<Message> {
        if self.tools.is_empty() {
            return messages;
        }
        if messages.first().is_none_or(|first| !is_system(first)) {
            messages.insert(0, message("system", String::new()));
        }
        let functions: Vec<&Value> = self.tools.iter().map(function).collect();
        let tools = json(&json!(functions));
        let tools = Value::String(tokenizer.escape_control_text(&tools).into_owned());
        messages[0].rest.entry("tools").or_insert(tools);
        messages
    }

    /// The text that describes the tools and the call syntax.
    fn prompt(&self, tokenizer: &Tokenizer) -> String {
        let mut prompt =
            "You can call these functions. Each is described by its name and a JSON Schema of its \
                          parameters:\n"
                .to_owned();
        for tool in self.tools {
            prompt.push_str(&tokenizer.escape_control_text(&json(function(tool))));
            prompt.push('\n');
        }
        let example = json!({"PARAMETER": "VALUE"});
        let example = example.as_object().cloned().unwrap_or_default();
        let one = written_calls(self.family, &[("FUNCTION", &example)]);
        prompt.push_str("\nTo call a function, answer with its name and arguments in this form and nothing else:\n");
        prompt.push_str(&one);
        if !self.once {
            let two = [("FUNCTION", &example), ("OTHER_FUNCTION", &example)];
            prompt.push_str("\nTo call several functions:\n");
            prompt.push_str(&written_calls(self.family, &two));
        }
        prompt.push_str(
            "\nThe results come in the next message. Where no function is needed, or the results are there, answer \
             in plain text.",
        );
        prompt
    }
}

fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}

fn is_system(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

fn message(role: &str, content: String) -> Message {
    Message {
        role: role.to_owned(),
        content: Value::String(content),
        rest: Map::new(),
    }
}

/// Inserts a text before or into the first message that the template renders.
fn put_first(messages: &mut Vec<Message>, place: GenericPlace, text: &str) {
    match place {
        GenericPlace::System => match messages.first_mut().filter(|first| is_system(first)) {
            Some(system) => append(&mut system.content, text),
            None => messages.insert(0, message("system", text.to_owned())),
        },
        GenericPlace::User => match messages.iter_mut().find(|message| message.role == "user") {
            Some(user) => {
                let said = std::mem::take(&mut user.content);
                user.content = Value::String(text.to_owned());
                append(&mut user.content, said.as_str().unwrap_or_default());
            }
            None => messages.insert(0, message("user", text.to_owned())),
        },
    }
}

/// Appends text after a separator.
fn append(content: &mut Value, more: &str) {
    let mut text = content.as_str().unwrap_or_default().to_owned();
    if !text.is_empty() && !more.is_empty() {
        text.push_str(GAP);
    }
    text.push_str(more);
    *content = Value::String(text);
}

/// Writes earlier calls as assistant text and results as user text. Adjacent results, and the user message
/// after them, are merged into one message: templates expect alternating turns.
fn in_text(family: ToolFamily, messages: Vec<Message>) -> Vec<Message> {
    let mut names: Vec<(String, String)> = Vec::new();
    let mut told: Vec<Message> = Vec::with_capacity(messages.len());
    // Whether the last message holds results.
    let mut after_results = false;
    for mut message in messages {
        let is_result = message.role == "tool";
        if is_result {
            message = result(&message, &names);
        } else if let Some(calls) = message.rest.shift_remove("tool_calls") {
            let calls = calls.as_array().map_or(&[][..], Vec::as_slice);
            names.extend(calls.iter().filter_map(named));
            append(&mut message.content, &written_calls(family, &made(calls)));
        }
        let continues = after_results && message.role == "user";
        after_results = is_result;
        match told.last_mut().filter(|_| continues) {
            Some(last) => append(
                &mut last.content,
                message.content.as_str().unwrap_or_default(),
            ),
            None => told.push(message),
        }
    }
    told
}

/// Id and name of a call.
fn named(call: &Value) -> Option<(String, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some((text(&call["id"])?, text(&call["function"]["name"])?))
}

/// Names and arguments of calls; arguments that are no object are empty.
fn made(calls: &[Value]) -> Vec<(&str, &Map<String, Value>)> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    let made = calls.iter().map(|call| {
        let function = function(call);
        let name = function["name"].as_str().unwrap_or_default();
        (name, function["arguments"].as_object().unwrap_or(&NONE))
    });
    made.collect()
}

/// A tool result as a user message with the function's name.
fn result(message: &Message, names: &[(String, String)]) -> Message {
    let id = message.rest.get("tool_call_id").and_then(Value::as_str);
    let by_id = || {
        names
            .iter()
            .rev()
            .find(|(known, _)| Some(known.as_str()) == id)
    };
    let name = message.rest.get("name").and_then(Value::as_str);
    let name = name.or_else(|| by_id().map(|(_, name)| name.as_str()));
    let mut told = Map::new();
    if let Some(name) = name {
        told.insert("function".to_owned(), name.into());
    }
    told.insert("result".to_owned(), message.content.clone());
    self::message("user", json(&json!({"tool_response": told})))
}

/// Name and arguments of a call.
type Call<'a> = (&'a str, &'a Map<String, Value>);

/// Writes the calls of one answer in the syntax that the family's parser reads.
fn written_calls(family: ToolFamily, calls: &[Call<'_>]) -> String {
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
    python_json::dumps(&python_json::from_json(value), &style).unwrap_or_default()
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
