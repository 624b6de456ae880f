//! The events of one choice folded into one value.

use crate::generate::event::{Call, CallPart, Delta, Entry, Event, Kind, Logprobs};
use engine::TopLogprob;
use std::borrow::Cow;
use stream::End;
use text::Tokenizer;

/// One choice's events, collected.
#[derive(Default)]
pub(crate) struct Answer {
    /// In order; neighbours are of different kinds, or calls.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) top: Vec<TopLogprob>,
    pub(crate) top_n: usize,
    /// Tokens of what it thought.
    pub(crate) thought: u64,
    /// `None` until it ended.
    pub(crate) end: Option<End>,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Reasoning(String),
    Call(WholeCall),
}

/// A call, collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholeCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// One JSON value, where the call is whole.
    pub(crate) arguments: String,
}

impl Answer {
    /// The next event.
    pub(crate) fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Delta(delta) => {
                self.say(delta.kind, delta.text);
                if delta.kind == Kind::Reasoning {
                    self.thought += delta.at.tokens;
                }
            }
            Event::Call(call) => self.call(call.said),
            Event::End { end, .. } => self.end = Some(*end),
        }
        if let Event::Delta(Delta { at, .. }) | Event::Call(Call { at, .. }) = event {
            self.entries.extend_from_slice(at.logprobs.entries);
            self.top.extend_from_slice(at.logprobs.top);
            self.top_n = at.logprobs.top_n;
        }
    }

    /// More text.
    pub(crate) fn say(&mut self, kind: Kind, text: &str) {
        match (kind, self.pieces.last_mut()) {
            _ if text.is_empty() => {}
            (Kind::Text, Some(Piece::Text(so_far)))
            | (Kind::Reasoning, Some(Piece::Reasoning(so_far))) => so_far.push_str(text),
            (Kind::Text, _) => self.pieces.push(Piece::Text(text.to_owned())),
            (Kind::Reasoning, _) => self.pieces.push(Piece::Reasoning(text.to_owned())),
        }
    }

    /// More of a call.
    pub(crate) fn call(&mut self, part: CallPart<'_>) {
        match (part, self.pieces.last_mut()) {
            (CallPart::Start { id, name }, _) => self.pieces.push(Piece::Call(WholeCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: String::new(),
            })),
            (CallPart::Args(more), Some(Piece::Call(call))) => call.arguments.push_str(more),
            (CallPart::Args(_) | CallPart::End, _) => {}
        }
    }

    /// What the user is told.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        joined(self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            _ => None,
        }))
    }

    /// What the model thought.
    pub(crate) fn reasoning(&self) -> Cow<'_, str> {
        joined(self.pieces.iter().filter_map(|piece| match piece {
            Piece::Reasoning(text) => Some(text.as_str()),
            _ => None,
        }))
    }

    /// The tools it calls.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &WholeCall> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Call(call) => Some(call),
            _ => None,
        })
    }

    /// Its log-probabilities, as a delta has them.
    pub(crate) fn logprobs<'a>(&'a self, tokenizer: &'a Tokenizer) -> Logprobs<'a> {
        Logprobs {
            tokenizer,
            entries: &self.entries,
            top: &self.top,
            top_n: self.top_n,
        }
    }
}

/// One text is as it is.
fn joined<'a>(mut texts: impl Iterator<Item = &'a str>) -> Cow<'a, str> {
    let mut all = Cow::Borrowed(texts.next().unwrap_or_default());
    texts.for_each(|text| all.to_mut().push_str(text));
    all
}
