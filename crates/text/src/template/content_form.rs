//! The contents that a template takes: texts, lists of parts, and parts that are images. Found by rendering tiny conversations.

use super::capabilities::{FIRST, PROBE, SECOND, THIRD, message, probe_call, probe_tools};
use super::chat_template::{ChatTemplate, RenderInput};
use super::image_parts::{image_marks, parts_of, text_part};
use super::message::Message;
use serde_json::{Value, json};

/// The contents that a template takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentForm {
    /// Whether texts, too, have to be lists of parts.
    lists_only: bool,
    /// Whether images are parts in messages of the user, in instructions, and in results of tools.
    images: [bool; 3],
}

impl ContentForm {
    /// Tries a template.
    pub(super) fn of(template: &ChatTemplate) -> Self {
        let shows = |content: Value| {
            let user = Message {
                content,
                ..message("user", "")
            };
            let shown = rendered(template, &[user], &[]);
            shown.is_some_and(|text| text.contains(PROBE))
        };
        let lists_only = !shows(json!(PROBE)) && shows(json!([text_part(PROBE)]));
        let form = |message: Message| {
            if lists_only {
                with_list(message)
            } else {
                message
            }
        };
        let takes = |before: &[Message], turn: Message, after: &[Message], tools: &[Value]| {
            writes_images(|content| {
                let turn = Message {
                    content,
                    ..turn.clone()
                };
                let turns = [before, &[turn], after].concat();
                rendered(template, &turns, tools)
            })
        };
        let user = form(message("user", SECOND));
        let mut call = probe_call(SECOND, "");
        let result = call.pop().unwrap_or_else(|| message("tool", ""));
        let called: Vec<Message> =
            [vec![user.clone()], call.into_iter().map(form).collect()].concat();
        Self {
            lists_only,
            images: [
                takes(&[], user.clone(), &[], &[]),
                takes(&[], message("system", ""), &[user], &[]),
                takes(&called, result, &[], &probe_tools()),
            ],
        }
    }

    /// Whether images are parts in messages of this role.
    fn takes_images(self, role: &str) -> bool {
        let [user, system, tool] = self.images;
        match role {
            "user" => user,
            "system" | "developer" => system,
            "tool" => tool,
            _ => false,
        }
    }

    /// The messages in this form; `None`: they are already. Without `as_parts` the marks of images stay.
    pub(super) fn fit(self, messages: &[Message], as_parts: bool) -> Option<Vec<Message>> {
        let has_marks = |message: &Message| match &message.content {
            Value::String(text) => image_marks(text).next().is_some(),
            _ => false,
        };
        let becomes_list = |message: &Message| {
            self.lists_only && message.content.is_string()
                || as_parts && self.takes_images(&message.role) && has_marks(message)
        };
        if !messages.iter().any(becomes_list) {
            return None;
        }
        let fitted = messages.iter().map(|message| {
            let mut message = message.clone();
            if becomes_list(&message) {
                let as_parts = as_parts && self.takes_images(&message.role);
                message.content = match (&message.content, as_parts) {
                    (Value::String(text), true) => parts_of(text),
                    (Value::String(text), false) => json!([text_part(text.as_str())]),
                    (other, _) => other.clone(),
                };
            }
            message
        });
        Some(fitted.collect())
    }
}

/// Whether a template writes something for an image between two texts, both texts once, and no list as such.
fn writes_images(with: impl Fn(Value) -> Option<String>) -> bool {
    let (first, second) = (text_part(FIRST), text_part(THIRD));
    let seen = with(json!([first, {"type": "image"}, second]));
    let unseen = with(json!([first, second]));
    let (Some(seen), Some(unseen)) = (seen, unseen) else {
        return false;
    };
    let once = |part: &str| seen.matches(part).count() == 1;
    // A list that is written as such has the names of its members.
    let names = |text: &str| ["'type'", "\"type\""].map(|name| text.matches(name).count());
    let is_named_as_in = |other: &String| names(&seen) == names(other);
    let plain = with(json!(FIRST));
    once(FIRST) && once(THIRD) && seen != unseen && plain.as_ref().is_none_or(is_named_as_in)
}

fn rendered(template: &ChatTemplate, messages: &[Message], tools: &[Value]) -> Option<String> {
    let input = RenderInput {
        messages,
        tools,
        add_generation_prompt: true,
        ..RenderInput::default()
    };
    template.render_as_given(&input).ok()
}

/// The message with its text as a list of one part.
fn with_list(message: Message) -> Message {
    let content = match &message.content {
        Value::String(text) => json!([text_part(text.as_str())]),
        other => other.clone(),
    };
    Message { content, ..message }
}
