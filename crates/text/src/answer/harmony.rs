//! gpt-oss: messages with headers, each in a channel.
//!
//! `<|channel|>analysis<|message|>..<|end|>` is reasoning, `final` is text, and so is `commentary`
//! without a recipient; with `to=functions.NAME` a message is a call's arguments. Every message but the
//! first begins with `<|start|>assistant`.

use super::escape::is_blank;
use super::named::is_name;
use super::out::Out;

/// Longest header of a message, in bytes: a longer one is text.
pub const HEADER_BYTES_MAX: usize = 512;

pub(super) const START: &str = "<|start|>";
pub(super) const CHANNEL: &str = "<|channel|>";
pub(super) const CONSTRAIN: &str = "<|constrain|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|end|>";
pub(super) const RETURN: &str = "<|return|>";
pub(super) const CALL: &str = "<|call|>";

/// The format's own tokens. Each begins with a character that it has only there.
pub(super) const MARKERS: [&str; 7] = [START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL];

/// The machine.
#[derive(Debug)]
pub(super) struct Harmony {
    at: At,
    /// The beginning of a marker.
    held: String,
    /// The header so far, with its markers.
    header: String,
    /// The call has arguments.
    argued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before a header, or in one.
    Header,
    Text,
    Reasoning,
    Call,
}

impl Harmony {
    /// At the beginning of an answer, after `<|start|>assistant`.
    pub(super) fn new() -> Self {
        Self {
            at: At::Header,
            held: String::new(),
            header: String::new(),
            argued: false,
        }
    }

    /// Takes more text.
    pub(super) fn push(&mut self, text: &str, out: &mut Out) {
        text.chars().for_each(|c| self.step(c, out));
    }

    /// The text is over.
    pub(super) fn finish(&mut self, out: &mut Out) {
        self.release(out);
        match self.at {
            At::Header if self.header.trim_matches(is_blank).is_empty() => {}
            At::Header => self.fall(out),
            At::Call => self.end_message(out),
            At::Text | At::Reasoning => {}
        }
    }

    fn step(&mut self, c: char, out: &mut Out) {
        self.held.push(c);
        out.look(self.held.len());
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

    /// What is held is no marker.
    fn release(&mut self, out: &mut Out) {
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.plain(c, out));
        self.held = held;
        self.held.clear();
    }

    fn plain(&mut self, c: char, out: &mut Out) {
        match self.at {
            At::Text => out.text().push(c),
            At::Reasoning => out.reasoning().push(c),
            At::Call if !self.argued && is_blank(c) => {}
            At::Call => {
                self.argued = true;
                out.args().push(c);
            }
            At::Header => {
                self.header.push(c);
                out.look(self.header.len());
                // A header begins with a marker, or with the recipient.
                let begun = self.header.trim_start_matches(is_blank);
                let may_be =
                    begun.starts_with("<|") || begun.starts_with("to=") || "to=".starts_with(begun);
                if !may_be || self.header.len() > HEADER_BYTES_MAX {
                    self.fall(out);
                }
            }
        }
    }

    fn marker(&mut self, marker: &str, out: &mut Out) {
        match (self.at, marker) {
            (At::Header, MESSAGE) => self.begin_message(out),
            (At::Header, START | CHANNEL | CONSTRAIN) => {
                self.header.push_str(marker);
                if self.header.len() > HEADER_BYTES_MAX {
                    self.fall(out);
                }
            }
            (At::Header, _) if self.header.trim_matches(is_blank).is_empty() => {}
            (At::Header, _) => self.fall(out),
            (_, START | CHANNEL) => {
                self.end_message(out);
                self.header.push_str(marker);
            }
            (_, END | RETURN | CALL) => self.end_message(out),
            _ => marker.chars().for_each(|c| self.plain(c, out)),
        }
    }

    fn begin_message(&mut self, out: &mut Out) {
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
        self.at = match (name.filter(|name| is_name(name)), channel.as_deref()) {
            (Some(name), _) => {
                out.start(name, "");
                self.argued = false;
                At::Call
            }
            (None, Some("analysis")) => At::Reasoning,
            (None, _) => At::Text,
        };
        self.header.clear();
    }

    fn end_message(&mut self, out: &mut Out) {
        if self.at == At::Call {
            if !self.argued {
                out.args().push_str("{}");
            }
            out.end();
        }
        self.at = At::Header;
        self.header.clear();
    }

    /// What looked like a header is none.
    fn fall(&mut self, out: &mut Out) {
        out.broke();
        out.text().push_str(&self.header);
        self.header.clear();
        self.at = At::Text;
    }
}
