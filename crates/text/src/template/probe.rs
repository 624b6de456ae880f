//! Tiny conversations, rendered to find out what a chat template can do.

use super::chat_template::{ChatTemplate, RenderInput};
use super::message::Message;
use serde_json::{Map, Value, json};

/// A text that occurs in no template.
pub(super) const PROBE: &str = "probe_7f3a";
// Further texts that occur in no template. None is a part of another.
pub(super) const FIRST: &str = "probe_1c9e";
pub(super) const SECOND: &str = "probe_2d8f";
pub(super) const THIRD: &str = "probe_3e7a";
pub(super) const FOURTH: &str = "probe_4f6b";

/// An id of a call that every template takes.
pub(super) const PROBE_ID: &str = "probe0001";

/// A message without further fields.
pub(super) fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: content.into(),
        rest: Map::new(),
    }
}

/// The definition of one tool.
pub(super) fn probe_tools() -> [Value; 1] {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "description": "where"}},
        "required": ["city"],
    });
    let function = json!({"name": PROBE, "description": "what it does", "parameters": parameters});
    [json!({"type": "function", "function": function})]
}

/// A tool call with this argument, and its result.
pub(super) fn probe_call(argument: &str, result: &str) -> Vec<Message> {
    let function = json!({"name": PROBE, "arguments": {"city": argument}});
    let call = json!({"type": "function", "id": PROBE_ID, "function": function});
    let mut calling = message("assistant", "");
    calling.rest.insert("tool_calls".to_owned(), json!([call]));
    let mut answer = message("tool", result);
    answer
        .rest
        .insert("tool_call_id".to_owned(), json!(PROBE_ID));
    answer.rest.insert("name".to_owned(), json!(PROBE));
    vec![calling, answer]
}

impl ChatTemplate {
    /// The rendered probe with the beginning of an answer; `None` if the template fails.
    pub(super) fn rendered_probe(&self, messages: &[Message], tools: &[Value]) -> Option<String> {
        let input = RenderInput {
            messages,
            tools,
            add_generation_prompt: true,
            ..RenderInput::default()
        };
        self.render(&input).ok()
    }

    /// Whether the template renders the turns, given as roles and texts, with each text.
    pub(super) fn shows_turns(&self, turns: &[(&str, &str)]) -> bool {
        let messages: Vec<Message> = turns
            .iter()
            .map(|(role, text)| message(role, text))
            .collect();
        let rendered = self.rendered_probe(&messages, &[]);
        rendered.is_some_and(|shown| turns.iter().all(|(_, text)| shown.contains(text)))
    }
}
