//! Tools for templates without support for tools, inserted into the conversation's text as llama.cpp does.
//!
//! Tool definitions and instructions go into the system message, calls of earlier turns into the assistant's
//! text, results into the user's. Calls are written in the syntax of the family whose parser reads the answer
//! (`call_examples`), so that the model is shown the syntax that is parsed.

pub(super) mod call_examples;

use super::capabilities::{GenericPlace, ToolSupport};
use super::message::Message;
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
        let tools = call_examples::json(&json!(functions));
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
            prompt.push_str(&tokenizer.escape_control_text(&call_examples::json(function(tool))));
            prompt.push('\n');
        }
        let example = json!({"PARAMETER": "VALUE"});
        let example = example.as_object().cloned().unwrap_or_default();
        let one = call_examples::calls(self.family, &[("FUNCTION", &example)]);
        prompt.push_str("\nTo call a function, answer with its name and arguments in this form and nothing else:\n");
        prompt.push_str(&one);
        if !self.once {
            let two = [("FUNCTION", &example), ("OTHER_FUNCTION", &example)];
            prompt.push_str("\nTo call several functions:\n");
            prompt.push_str(&call_examples::calls(self.family, &two));
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
            append(
                &mut message.content,
                &call_examples::calls(family, &made(calls)),
            );
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
    self::message("user", call_examples::json(&json!({"tool_response": told})))
}

#[cfg(test)]
mod tests;
