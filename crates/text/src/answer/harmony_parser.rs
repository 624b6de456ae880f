//! Harmony answers (gpt-oss): messages with headers, each message in a channel.
//!
//! `<|channel|>analysis<|message|>..<|end|>` is reasoning; `final`, and `commentary` without a recipient, are
//! content; with `to=functions.NAME` the message is a call's arguments. Every message except the first begins
//! with `<|start|>assistant`.
//!
//! A message to a function is always a call: arguments that are not JSON are emitted unchanged, and counted
//! as malformed.

use super::answer_parts::PartWriter;
use super::named_call::is_name;
use super::value_converter::{StepResult, ValueConverter, ValueStyle, is_blank};

/// Longest header of a message, in bytes; a longer header is treated as content.
pub const HEADER_BYTES_MAX: usize = 512;

pub(super) const START: &str = "<|start|>";
pub(super) const CHANNEL: &str = "<|channel|>";
pub(super) const CONSTRAIN: &str = "<|constrain|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|end|>";
pub(super) const RETURN: &str = "<|return|>";
pub(super) const CALL: &str = "<|call|>";

/// Control tokens of the format. The first character of each token occurs in the token only once.
pub(super) const MARKERS: [&str; 7] = [START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL];

/// Parser of Harmony answers.
#[derive(Debug)]
pub(super) struct HarmonyParser {
    state: HarmonyState,
    /// Prefix of a delimiter.
    held: String,
    /// The header so far, including delimiters.
    header: String,
    /// Whether the last message was a call; then a truncated header is dropped.
    after_call: bool,
    args: ArgumentState,
}

/// State of a call's arguments.
#[derive(Debug)]
enum ArgumentState {
    /// No arguments yet; `true` where the arguments must be JSON.
    None(bool),
    /// Inside JSON.
    Json(Box<ValueConverter>),
    /// After complete JSON.
    Whole,
    /// Arguments that are copied unchanged: not JSON, or not required to be JSON.
    AsTheyStand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HarmonyState {
    /// Before or inside a header.
    Header,
    Text,
    Reasoning,
    Call,
}

impl HarmonyParser {
    /// A parser at the beginning of an answer, after `<|start|>assistant`.
    pub(super) fn new() -> Self {
        Self {
            state: HarmonyState::Header,
            held: String::new(),
            header: String::new(),
            after_call: false,
            args: ArgumentState::None(false),
        }
    }

    /// Consumes text.
    pub(super) fn push(&mut self, text: &str, out: &mut PartWriter<'_>) {
        text.chars().for_each(|c| self.step(c, out));
    }

    /// Ends the answer.
    pub(super) fn finish(&mut self, out: &mut PartWriter<'_>) {
        // A delimiter prefix after complete arguments is not part of the arguments.
        if self.state == HarmonyState::Call && matches!(self.args, ArgumentState::Whole) {
            self.end_call(out);
            self.held.clear();
            self.state = HarmonyState::Text;
        }
        if self.state == HarmonyState::Header && self.after_call {
            if self.names_a_tool() {
                out.set_truncated();
            }
            self.header.clear();
            self.held.clear();
        }
        self.release(out);
        match self.state {
            HarmonyState::Header if self.header.trim_matches(is_blank).is_empty() => {}
            HarmonyState::Header => {
                if self.names_a_tool() {
                    out.set_truncated();
                }
                self.give_up(out);
            }
            HarmonyState::Call => {
                if matches!(self.args, ArgumentState::Json(_)) {
                    out.set_truncated();
                }
                self.end_call(out);
            }
            HarmonyState::Text | HarmonyState::Reasoning => {}
        }
    }

    /// Bytes of text that no part has yet.
    pub(super) fn held_bytes(&self) -> usize {
        self.header.len() + self.held.len()
    }

    fn step(&mut self, c: char, out: &mut PartWriter<'_>) {
        self.held.push(c);
        out.count_examined(self.held.len());
        if let Some(marker) = MARKERS.into_iter().find(|&marker| marker == self.held) {
            self.held.clear();
            self.marker(marker, out);
        } else if !MARKERS.iter().any(|marker| marker.starts_with(&self.held)) {
            self.held.pop();
            self.release(out);
            if c == '<' {
                self.held.push(c);
            } else {
                self.plain(c, out);
            }
        }
    }

    /// Treats the held prefix as plain text.
    fn release(&mut self, out: &mut PartWriter<'_>) {
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.plain(c, out));
        self.held = held;
        self.held.clear();
    }

    fn plain(&mut self, c: char, out: &mut PartWriter<'_>) {
        match self.state {
            HarmonyState::Text => out.content().push(c),
            HarmonyState::Reasoning => out.reasoning().push(c),
            HarmonyState::Call => self.argument(c, out),
            HarmonyState::Header => {
                self.header.push(c);
                out.count_examined(self.header.len());
                // A header begins with a delimiter or with the recipient.
                let begun = self.header.trim_start_matches(is_blank);
                let may_be =
                    begun.starts_with("<|") || begun.starts_with("to=") || "to=".starts_with(begun);
                if !may_be || self.header.len() > HEADER_BYTES_MAX {
                    self.fall(out);
                }
            }
        }
    }

    /// Appends a character to a call's arguments; JSON is normalized as in other families.
    fn argument(&mut self, c: char, out: &mut PartWriter<'_>) {
        match &mut self.args {
            ArgumentState::None(_) if is_blank(c) => {}
            ArgumentState::None(true) if c == '{' => {
                let mut literal = ValueConverter::new(ValueStyle::Json);
                literal.step(c, out.arguments());
                self.args = ArgumentState::Json(Box::new(literal));
            }
            ArgumentState::Json(literal) => match literal.step(c, out.arguments()) {
                StepResult::More => {}
                StepResult::Done => self.args = ArgumentState::Whole,
                StepResult::DoneBefore | StepResult::Fail => {
                    literal.unsaid(out.arguments());
                    self.break_off(c, out);
                }
            },
            ArgumentState::None(true) => self.break_off(c, out),
            ArgumentState::Whole if !is_blank(c) => self.break_off(c, out),
            ArgumentState::None(false) => {
                out.arguments().push(c);
                self.args = ArgumentState::AsTheyStand;
            }
            ArgumentState::Whole | ArgumentState::AsTheyStand => out.arguments().push(c),
        }
    }

    /// Ends JSON mode: the arguments are not JSON from this character on.
    fn break_off(&mut self, c: char, out: &mut PartWriter<'_>) {
        out.count_broken();
        out.arguments().push(c);
        self.args = ArgumentState::AsTheyStand;
    }

    fn marker(&mut self, marker: &str, out: &mut PartWriter<'_>) {
        match (self.state, marker) {
            (HarmonyState::Header, MESSAGE) => self.begin_message(out),
            (HarmonyState::Header, START | CHANNEL | CONSTRAIN) => {
                self.header.push_str(marker);
                if self.header.len() > HEADER_BYTES_MAX {
                    self.fall(out);
                }
            }
            (HarmonyState::Header, _) if self.header.trim_matches(is_blank).is_empty() => {}
            (HarmonyState::Header, _) => self.fall(out),
            (_, START | CHANNEL) => {
                self.end_message(out);
                self.header.push_str(marker);
            }
            (_, END | RETURN | CALL) => self.end_message(out),
            _ => marker.chars().for_each(|c| self.plain(c, out)),
        }
    }

    fn begin_message(&mut self, out: &mut PartWriter<'_>) {
        let word = |text: &str| {
            let end = text.find(|c: char| is_blank(c) || c == '<');
            text[..end.unwrap_or(text.len())].to_owned()
        };
        let recipient = self.header.split_once("to=").map(|(_, rest)| word(rest));
        let channel = self.header.split_once(CHANNEL).map(|(_, rest)| word(rest));
        let name = recipient.as_deref().map(|recipient| {
            let name = recipient.strip_prefix("functions.");
            name.unwrap_or(recipient)
        });
        self.state = match (name.filter(|name| is_name(name)), channel.as_deref()) {
            (Some(name), _) => {
                out.start_call(name, "");
                // Other recipients are built-in tools of the model, which take code.
                let is_function = recipient.as_deref() != Some(name);
                self.args = ArgumentState::None(is_function);
                HarmonyState::Call
            }
            (None, Some("analysis")) => HarmonyState::Reasoning,
            (None, _) => HarmonyState::Text,
        };
        self.header.clear();
    }

    fn end_message(&mut self, out: &mut PartWriter<'_>) {
        self.after_call = self.state == HarmonyState::Call;
        if self.state == HarmonyState::Call {
            if matches!(self.args, ArgumentState::Json(_)) {
                out.count_broken();
            }
            self.end_call(out);
        }
        self.state = HarmonyState::Header;
        self.header.clear();
    }

    fn end_call(&mut self, out: &mut PartWriter<'_>) {
        match &self.args {
            ArgumentState::None(_) => out.arguments().push_str("{}"),
            ArgumentState::Json(literal) => literal.unsaid(out.arguments()),
            ArgumentState::Whole | ArgumentState::AsTheyStand => {}
        }
        out.end_call();
    }

    /// Whether the header names a recipient, so that the message is a call.
    fn names_a_tool(&self) -> bool {
        self.header.contains("to=")
    }

    /// Abandons the header: the text is no header.
    fn fall(&mut self, out: &mut PartWriter<'_>) {
        if self.names_a_tool() {
            out.count_broken();
        }
        self.give_up(out);
    }

    fn give_up(&mut self, out: &mut PartWriter<'_>) {
        out.content().push_str(&self.header);
        self.header.clear();
        self.state = HarmonyState::Text;
    }
}
