//! The events of one choice folded into one value.

use crate::output::event::{Delta, DeltaKind, Entry, Event, Logprobs, ToolCall, ToolCallPart};
use engine::TopLogprob;
use std::borrow::Cow;
use stream::End;
use text::Tokenizer;

/// The events of one choice, collected.
#[derive(Default)]
pub struct CollectedAnswer {
    /// Parts in order; neighbors differ in kind, or are tool calls.
    pub parts: Vec<AnswerPart>,
    /// Log-probabilities, one entry per token of the content.
    pub entries: Vec<Entry>,
    /// Number of entries up to the end of each part.
    pub part_entries: Vec<usize>,
    /// Alternatives. (entries.len(), top_n)
    pub top: Vec<TopLogprob>,
    /// Alternatives per entry.
    pub top_n: usize,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
    /// `None` before the end.
    pub end: Option<End>,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// Content.
    Text(String),
    /// Reasoning.
    Reasoning(String),
    /// A tool call.
    Call(CollectedCall),
}

/// A collected tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedCall {
    /// Id of the call, unique within the stream.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// A JSON value, if the call is complete.
    pub arguments: String,
}

impl CollectedAnswer {
    /// Adds the next event.
    pub fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Delta(delta) => {
                self.say(delta.kind, delta.text);
                if delta.kind == DeltaKind::Reasoning {
                    self.reasoning_tokens += delta.origin.tokens;
                }
            }
            Event::ToolCall(call) => self.call(call.part),
            Event::ChoiceEnded { end, .. } => self.end = Some(*end),
            _ => {}
        }
        if let Event::Delta(Delta { origin, .. }) | Event::ToolCall(ToolCall { origin, .. }) = event
        {
            self.entries.extend_from_slice(origin.logprobs.entries);
            self.top.extend_from_slice(origin.logprobs.top);
            self.top_n = origin.logprobs.top_n;
            self.part_entries.resize(self.parts.len(), 0);
            if let Some(last) = self.part_entries.last_mut() {
                *last = self.entries.len();
            }
        }
    }

    /// Adds text.
    pub fn say(&mut self, kind: DeltaKind, text: &str) {
        match (kind, self.parts.last_mut()) {
            _ if text.is_empty() => {}
            (DeltaKind::Text, Some(AnswerPart::Text(so_far)))
            | (DeltaKind::Reasoning, Some(AnswerPart::Reasoning(so_far))) => so_far.push_str(text),
            (DeltaKind::Text, _) => self.parts.push(AnswerPart::Text(text.to_owned())),
            (DeltaKind::Reasoning, _) => self.parts.push(AnswerPart::Reasoning(text.to_owned())),
        }
    }

    /// Adds a part of a tool call.
    pub fn call(&mut self, part: ToolCallPart<'_>) {
        match (part, self.parts.last_mut()) {
            (ToolCallPart::Start { id, name }, _) => {
                self.parts.push(AnswerPart::Call(CollectedCall {
                    id: id.to_owned(),
                    name: name.to_owned(),
                    arguments: String::new(),
                }));
            }
            (ToolCallPart::Args(more), Some(AnswerPart::Call(call))) => {
                call.arguments.push_str(more);
            }
            (ToolCallPart::Args(_) | ToolCallPart::End, _) => {}
        }
    }

    /// The content.
    pub fn text(&self) -> Cow<'_, str> {
        join_texts(self.parts.iter().filter_map(|part| match part {
            AnswerPart::Text(text) => Some(text.as_str()),
            _ => None,
        }))
    }

    /// The reasoning.
    pub fn reasoning(&self) -> Cow<'_, str> {
        join_texts(self.parts.iter().filter_map(|part| match part {
            AnswerPart::Reasoning(text) => Some(text.as_str()),
            _ => None,
        }))
    }

    /// The tool calls.
    pub fn calls(&self) -> impl Iterator<Item = &CollectedCall> {
        self.parts.iter().filter_map(|part| match part {
            AnswerPart::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The log-probabilities of one part.
    pub fn part_logprobs<'a>(&'a self, part: usize, tokenizer: &'a Tokenizer) -> Logprobs<'a> {
        let through = |part: usize| self.part_entries.get(part).copied();
        let start = part.checked_sub(1).and_then(through).unwrap_or(0);
        let end = through(part).unwrap_or(start);
        Logprobs {
            tokenizer,
            entries: &self.entries[start..end],
            top: &self.top[start * self.top_n..end * self.top_n],
            top_n: self.top_n,
        }
    }

    /// The log-probabilities, as a delta has them.
    pub fn logprobs<'a>(&'a self, tokenizer: &'a Tokenizer) -> Logprobs<'a> {
        Logprobs {
            tokenizer,
            entries: &self.entries,
            top: &self.top,
            top_n: self.top_n,
        }
    }
}

/// Texts joined; a single text is borrowed.
fn join_texts<'a>(mut texts: impl Iterator<Item = &'a str>) -> Cow<'a, str> {
    let mut all = Cow::Borrowed(texts.next().unwrap_or_default());
    texts.for_each(|text| all.to_mut().push_str(text));
    all
}
