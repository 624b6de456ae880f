//! How a chat template takes the tool calls of earlier turns, and conversations with calls in that form.

use super::call_ids::CallIds;
use super::chat_template::ChatTemplate;
use super::generic_tools::call_examples;
use super::message::Message;
use super::probe::{
    FIRST, FOURTH, PROBE, PROBE_ID as PLAIN_ID, SECOND, THIRD, message, probe_tools,
};
use super::turn_support::TurnSupport;
use serde_json::{Value, json};

/// An id as most servers make them.
const LONG_ID: &str = "call_probe_0123456789";

/// The form of tool calls that a template renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallSupport {
    /// Whether arguments are a text of JSON rather than an object.
    argument_text: bool,
    /// Whether each call and each result must have an id.
    needs_ids: bool,
    /// Whether ids must be of nine letters and digits.
    nine_characters: bool,
    /// Whether a message may have several calls.
    several: bool,
    /// Whether text next to a call becomes a message of its own: otherwise the template drops that text.
    separates_text: bool,
}

impl CallSupport {
    /// A template that takes calls in every form.
    pub(super) const ALL: Self = Self {
        argument_text: false,
        needs_ids: false,
        nine_characters: false,
        several: true,
        separates_text: false,
    };

    /// Tries a template that renders these turns. `None`: it does not render calls and results.
    pub(super) fn of(template: &ChatTemplate, turns: &TurnSupport) -> Option<Self> {
        let plain = Probe {
            template,
            turns,
            argument_text: false,
            id: Some(PLAIN_ID),
        };
        let text = Probe {
            argument_text: true,
            ..plain
        };
        let probe = [plain, text].into_iter().find(Probe::shows_call)?;
        let with_id = |id| Probe { id, ..probe };
        let nine_characters = !with_id(Some(LONG_ID)).shows_call();
        Some(Self {
            argument_text: probe.argument_text,
            needs_ids: nine_characters || !with_id(None).shows_call(),
            nine_characters,
            several: probe.shows_two_calls(),
            separates_text: !probe.shows_text_beside() && probe.shows_text_before(),
        })
    }

    /// The conversation with tool calls in the form that the template renders. All arguments are objects.
    pub(super) fn fit(&self, mut messages: Vec<Message>) -> Vec<Message> {
        if self.needs_ids || !self.several {
            CallIds::new(self.nine_characters).complete(&mut messages);
        }
        if self.separates_text {
            messages = messages.into_iter().flat_map(with_text_apart).collect();
        }
        if !self.several {
            messages = one_call_each(messages);
        }
        if self.argument_text {
            messages.iter_mut().for_each(write_arguments);
        }
        messages
    }
}

/// Conversations with calls, for one template.
#[derive(Clone, Copy)]
struct Probe<'a> {
    template: &'a ChatTemplate,
    turns: &'a TurnSupport,
    argument_text: bool,
    id: Option<&'a str>,
}

impl Probe<'_> {
    fn shows(&self, messages: &[Message], texts: &[&str]) -> bool {
        let rendered = self.template.rendered_probe(messages, &probe_tools());
        rendered.is_some_and(|shown| texts.iter().all(|text| shown.contains(text)))
    }

    fn shows_call(&self) -> bool {
        let turns = [
            message("user", "hi"),
            self.calls("", &[FIRST]),
            self.result(SECOND),
        ];
        self.shows(&turns, &[FIRST, SECOND])
    }

    fn shows_two_calls(&self) -> bool {
        let calls = self.calls("", &[FIRST, THIRD]);
        let turns = [
            message("user", "hi"),
            calls,
            self.result(SECOND),
            self.result(FOURTH),
        ];
        self.shows(&turns, &[FIRST, SECOND, THIRD, FOURTH])
    }

    /// Whether text next to a call is rendered, also where an answer follows.
    fn shows_text_beside(&self) -> bool {
        let turns = [
            message("user", "hi"),
            self.calls(THIRD, &[FIRST]),
            self.result(SECOND),
            message("assistant", FOURTH),
            message("user", "hi"),
        ];
        self.shows(&turns[..3], &[FIRST, SECOND, THIRD])
            && self.shows(&turns, &[FIRST, SECOND, THIRD, FOURTH])
    }

    /// Whether the text may be a message before the call, in turns that the template renders.
    fn shows_text_before(&self) -> bool {
        let turns = vec![
            message("user", "hi"),
            message("assistant", THIRD),
            self.calls("", &[FIRST]),
            self.result(SECOND),
            message("assistant", FOURTH),
            message("user", "hi"),
        ];
        self.shows(&self.turns.fit(turns), &[FIRST, SECOND, THIRD, FOURTH])
    }

    /// A message with one call for each argument.
    fn calls(&self, content: &str, arguments: &[&str]) -> Message {
        let calls = arguments.iter().map(|city| {
            let arguments = if self.argument_text {
                json!(json!({ "city": city }).to_string())
            } else {
                json!({ "city": city })
            };
            let mut call =
                json!({"type": "function", "function": {"name": PROBE, "arguments": arguments}});
            if let Some(id) = self.id {
                call["id"] = json!(id);
            }
            call
        });
        let mut message = message("assistant", content);
        message
            .rest
            .insert("tool_calls".to_owned(), calls.collect());
        message
    }

    fn result(&self, content: &str) -> Message {
        let mut message = message("tool", content);
        message.rest.insert("name".to_owned(), json!(PROBE));
        if let Some(id) = self.id {
            message.rest.insert("tool_call_id".to_owned(), json!(id));
        }
        message
    }
}

/// The tool calls of a message.
pub(super) fn calls_of(message: &Message) -> &[Value] {
    let calls = message.rest.get("tool_calls").and_then(Value::as_array);
    calls.map_or(&[][..], Vec::as_slice)
}

/// A message with text and calls as two messages.
fn with_text_apart(mut calling: Message) -> Vec<Message> {
    let has_text = calling
        .content
        .as_str()
        .is_some_and(|text| !text.is_empty());
    if !has_text || calls_of(&calling).is_empty() {
        return vec![calling];
    }
    let text = std::mem::replace(&mut calling.content, Value::String(String::new()));
    let mut before = message("assistant", "");
    before.content = text;
    vec![before, calling]
}

/// Splits messages with several calls into messages of one call, each before its results.
fn one_call_each(messages: Vec<Message>) -> Vec<Message> {
    let mut split: Vec<Message> = Vec::with_capacity(messages.len());
    let mut messages = messages.into_iter().peekable();
    while let Some(mut calling) = messages.next() {
        let calls = calls_of(&calling).to_vec();
        if calls.len() < 2 {
            split.push(calling);
            continue;
        }
        let mut results: Vec<Message> = Vec::new();
        while let Some(result) = messages.next_if(|next| next.role == "tool") {
            results.push(result);
        }
        for call in calls {
            let id = call.get("id").cloned();
            calling.rest.insert("tool_calls".to_owned(), json!([call]));
            split.push(calling.clone());
            let is_of_call = |result: &mut Message| result.rest.get("tool_call_id") == id.as_ref();
            split.extend(results.extract_if(.., is_of_call));
            // The text of the message is rendered once, with the first call.
            calling = message("assistant", "");
        }
        split.append(&mut results);
    }
    split
}

/// Writes the arguments of each call as a text.
fn write_arguments(message: &mut Message) {
    let calls = message.rest.get_mut("tool_calls");
    for call in calls.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && !arguments.is_string()
        {
            *arguments = Value::String(call_examples::json(arguments));
        }
    }
}
