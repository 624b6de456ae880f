//! Which turns a chat template renders, and conversations in those turns.
//!
//! Templates drop or refuse turns that they were not written for: a role `developer`, a second system message, two user messages
//! in a row, a conversation that begins with the assistant. Which ones is found by rendering tiny conversations. Text is
//! moved into the nearest turn that the template renders; none is dropped.

use super::capabilities::{FIRST, PROBE, SECOND, THIRD, message, probe_call, probe_tools};
use super::chat_template::ChatTemplate;
use super::message::Message;
use serde_json::Value;
use std::borrow::Cow;

/// Where a template renders system messages; later variants include earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SystemPlace {
    /// Nowhere: instructions become a part of a user message.
    Nowhere,
    /// One at the beginning.
    First,
    /// Several at the beginning.
    Leading,
    Anywhere,
}

/// Turns that a template renders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnSupport {
    /// Whether the template knows the role `developer`.
    developer: bool,
    system: SystemPlace,
    /// Whether a system message is lost where the last message is not the user's, as with Mistral Nemo.
    system_needs_last_user: bool,
    /// Whether user and assistant need not alternate.
    any_order: bool,
    /// Whether a conversation may begin with the assistant.
    assistant_first: bool,
    /// Whether a conversation may consist of instructions alone.
    without_user: bool,
}

impl TurnSupport {
    /// A template that renders all turns.
    pub(super) const ALL: Self = Self {
        developer: true,
        system: SystemPlace::Anywhere,
        system_needs_last_user: false,
        any_order: true,
        assistant_first: true,
        without_user: true,
    };
    /// What every template renders: user and assistant in turn.
    pub(super) const LEAST: Self = Self {
        developer: false,
        system: SystemPlace::Nowhere,
        system_needs_last_user: false,
        any_order: false,
        assistant_first: false,
        without_user: false,
    };

    /// Tries a template. A template that does not even render a user message is taken to support all.
    pub(super) fn of(template: &ChatTemplate) -> Self {
        let shows = |turns: &[(&str, &str)]| template.shows_turns(turns);
        if !shows(&[("user", FIRST)]) {
            return Self::ALL;
        }
        let developer = knows_developer(template);
        Self {
            developer,
            system: system_place(template, developer),
            system_needs_last_user: loses_system_without_last_user(template),
            any_order: shows(&[("user", FIRST), ("user", SECOND)])
                && shows(&[
                    ("user", FIRST),
                    ("assistant", SECOND),
                    ("assistant", THIRD),
                    ("user", PROBE),
                ]),
            assistant_first: shows(&[("assistant", FIRST), ("user", SECOND)])
                && !loses_first_call(template),
            without_user: shows(&[("system", FIRST)]) && !needs_user_with_tools(template),
        }
    }

    /// The conversation in turns that the template renders, with all texts.
    pub(super) fn fit(&self, mut messages: Vec<Message>) -> Vec<Message> {
        if !self.developer {
            let instructions = messages.iter_mut().filter(|m| m.role == "developer");
            instructions.for_each(|message| "system".clone_into(&mut message.role));
        }
        let mut messages = self.place_instructions(messages);
        let begin = leading_instructions(&messages);
        let is_begun = match messages.get(begin) {
            Some(first) => first.role == "user" || self.assistant_first,
            None => self.without_user || messages.is_empty(),
        };
        if !is_begun {
            messages.insert(begin, message("user", ""));
        }
        if self.any_order {
            messages
        } else {
            alternating(messages)
        }
    }

    /// Moves instructions to places where the template renders instructions.
    fn place_instructions(&self, mut leading: Vec<Message>) -> Vec<Message> {
        let mut rest = leading.split_off(leading_instructions(&leading));
        if self.system_needs_last_user
            && !leading.is_empty()
            && rest.last().is_some_and(|last| last.role != "user")
        {
            if rest.iter().all(|message| message.role != "user") {
                rest.insert(0, message("user", ""));
            }
            // Into the user message in which the template wrote them before.
            if let Some(user) = rest.iter_mut().rfind(|message| message.role == "user") {
                for instructions in leading.drain(..).rev() {
                    prepend_text(user, &instructions.content);
                }
            }
        }
        if leading.len() > 1 && self.system < SystemPlace::Leading {
            let merged = leading.into_iter().reduce(|mut first, next| {
                append_message(&mut first, next);
                first
            });
            leading = merged.into_iter().collect();
        }
        if self.system < SystemPlace::Anywhere {
            rest = in_user_turns(rest);
        }
        if self.system == SystemPlace::Nowhere
            && let Some(instructions) = leading.pop()
        {
            if rest.first().is_none_or(|first| first.role != "user") {
                rest.insert(0, message("user", ""));
            }
            prepend_text(&mut rest[0], &instructions.content);
        }
        leading.extend(rest);
        leading
    }
}

/// Whether a template has a place for the role `developer`. A template that writes the name of any role does not: the model was
/// not trained on that name.
fn knows_developer(template: &ChatTemplate) -> bool {
    const OTHER_ROLE: &str = "probe_role";
    let of_role = |role| {
        let turns = [message(role, PROBE), message("user", FIRST)];
        template.rendered_probe(&turns, &[])
    };
    let shown = of_role("developer").filter(|text| text.contains(PROBE));
    shown.is_some()
        && shown != of_role(OTHER_ROLE).map(|text| text.replace(OTHER_ROLE, "developer"))
}

/// Whether the template leaves a system message out where a tool result, or an assistant message, is the last.
fn loses_system_without_last_user(template: &ChatTemplate) -> bool {
    let begin = || vec![message("system", PROBE), message("user", FIRST)];
    let mut answered = begin();
    answered.push(message("assistant", SECOND));
    let called = [begin(), probe_call(SECOND, THIRD)].concat();
    let loses = |turns: &[Message], tools: &[Value]| {
        let shown = template.rendered_probe(turns, tools);
        shown.is_some_and(|shown| shown.contains(FIRST) && !shown.contains(PROBE))
    };
    loses(&answered, &[]) || loses(&called, &probe_tools())
}

/// Whether the template renders a call after a user message, and not as the first message, as where Llama 3 writes the tools into
/// the first message.
fn loses_first_call(template: &ChatTemplate) -> bool {
    let shows = |turns: &[Message]| {
        let shown = template.rendered_probe(turns, &probe_tools());
        shown.is_some_and(|shown| shown.contains(FIRST) && shown.contains(SECOND))
    };
    let called = probe_call(FIRST, SECOND);
    !shows(&called) && shows(&[vec![message("user", "")], called].concat())
}

/// Whether the template renders instructions and tools only with a user message.
fn needs_user_with_tools(template: &ChatTemplate) -> bool {
    let shows = |turns: &[Message]| {
        let shown = template.rendered_probe(turns, &probe_tools());
        shown.is_some_and(|shown| shown.contains(FIRST) && shown.contains(PROBE))
    };
    let system = message("system", FIRST);
    !shows(std::slice::from_ref(&system)) && shows(&[system, message("user", "")])
}

fn system_place(template: &ChatTemplate, developer: bool) -> SystemPlace {
    let shows = |turns: &[(&str, &str)]| template.shows_turns(turns);
    if !shows(&[("system", FIRST), ("user", SECOND)]) {
        return SystemPlace::Nowhere;
    }
    let several = |role| shows(&[("system", FIRST), (role, SECOND), ("user", THIRD)]);
    if !several("system") || developer && !several("developer") {
        return SystemPlace::First;
    }
    let later = [
        ("system", FIRST),
        ("user", SECOND),
        ("assistant", "ok"),
        ("system", THIRD),
        ("user", PROBE),
    ];
    // Beside a first system message, and without one.
    if shows(&later) && shows(&later[1..]) {
        SystemPlace::Anywhere
    } else {
        SystemPlace::Leading
    }
}

fn is_instruction(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

/// Number of instructions before all other messages.
fn leading_instructions(messages: &[Message]) -> usize {
    let other = messages.iter().position(|message| !is_instruction(message));
    other.unwrap_or(messages.len())
}

/// Moves each instruction into the user message that follows, or into the user message before, or into a user message of its own.
/// Results of tool calls stay behind their calls.
fn in_user_turns(messages: Vec<Message>) -> Vec<Message> {
    let mut fitted: Vec<Message> = Vec::with_capacity(messages.len());
    let mut waiting: Option<Message> = None;
    for mut message in messages {
        if is_instruction(&message) {
            match &mut waiting {
                Some(waiting) => append_message(waiting, message),
                None => waiting = Some(message),
            }
            continue;
        }
        if message.role != "tool"
            && let Some(instructions) = waiting.take()
        {
            if message.role == "user" {
                prepend_text(&mut message, &instructions.content);
            } else {
                say_as_user(&mut fitted, &instructions);
            }
        }
        fitted.push(message);
    }
    if let Some(instructions) = waiting {
        say_as_user(&mut fitted, &instructions);
    }
    fitted
}

fn say_as_user(messages: &mut Vec<Message>, instructions: &Message) {
    if messages.last().is_none_or(|last| last.role != "user") {
        messages.push(message("user", ""));
    }
    if let Some(last) = messages.last_mut() {
        append_text(last, &instructions.content);
    }
}

/// Merges neighbors of one role, and separates others of one role by an empty turn. Tool calls and results are no turns: the
/// templates that want turns to alternate leave those out.
fn alternating(messages: Vec<Message>) -> Vec<Message> {
    let mut turns: Vec<Message> = Vec::with_capacity(messages.len());
    // Whether the last turn is the user's, and whether nothing followed.
    let (mut last_is_user, mut is_neighbor) = (None, false);
    for next in messages {
        if is_instruction(&next) || next.role == "tool" || next.rest.contains_key("tool_calls") {
            turns.push(next);
            is_neighbor = false;
            continue;
        }
        let is_user = next.role == "user";
        if last_is_user == Some(is_user) {
            match turns.last_mut().filter(|_| is_neighbor) {
                Some(last) => {
                    append_message(last, next);
                    continue;
                }
                None => turns.push(message(if is_user { "assistant" } else { "user" }, "")),
            }
        }
        turns.push(next);
        (last_is_user, is_neighbor) = (Some(is_user), true);
    }
    turns
}

/// Between texts that were separate messages.
const BLANK_LINE: &str = "\n\n";
/// Fields with a message's reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// Appends the text, the reasoning and the further fields of a message. Of two other fields with one name the first stays.
fn append_message(message: &mut Message, next: Message) {
    append_text(message, &next.content);
    for (name, value) in next.rest {
        let is_reasoning = REASONING.contains(&name.as_str());
        match (message.rest.entry(name).or_insert(Value::Null), value) {
            (said @ Value::Null, value) => *said = value,
            (Value::String(text), Value::String(more)) if is_reasoning => join(text, &more),
            _ => {}
        }
    }
}

/// Appends a text behind a blank line. The time does not depend on the text so far.
fn append_text(message: &mut Message, more: &Value) {
    if !message.content.is_string() {
        let text = content_text(&message.content).into_owned();
        message.content = Value::String(text);
    }
    let more = content_text(more);
    if let Value::String(text) = &mut message.content {
        join(text, &more);
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(BLANK_LINE);
    }
    text.push_str(more);
}

/// Puts a text and a blank line before the message's.
fn prepend_text(message: &mut Message, before: &Value) {
    let after = std::mem::replace(&mut message.content, before.clone());
    append_text(message, &after);
}

/// The text of a message's content: a string, or a list of parts with texts.
fn content_text(content: &Value) -> Cow<'_, str> {
    match content {
        Value::Null => "".into(),
        Value::String(text) => text.as_str().into(),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| match &part["text"] {
                Value::String(text) => text.as_str().into(),
                _ => content_text(part),
            });
            texts.collect::<Vec<_>>().join("\n").into()
        }
        other => other.to_string().into(),
    }
}
