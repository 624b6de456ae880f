//! What each wire format has to be able to say.

use crate::generate::cursor::Reached;
use crate::generate::error::ApiError;
use crate::generate::event::{Call, CallPart, Delta, Entry, Event, Kind, Logprobs, Usage};
use crate::generate::stream_change::Change;
use bytes::BytesMut;
use engine::TopLogprob;
use std::borrow::Cow;
use stream::End;
use text::Tokenizer;

/// The writer of one request's frames: everything constant is rendered once, when it is made.
pub(crate) trait Dialect: Send {
    /// What is said before anything happens.
    fn open(&mut self, choices: usize, usage: Usage, out: &mut BytesMut);
    /// In the place of `open`, for a client that was told as much of each choice before.
    fn resume(&mut self, _reached: &[Reached]) {}
    /// An event of those. They come before all others.
    fn known(&mut self, _event: &Event<'_>) {}
    /// What is to be said as soon as it is so, in frames of its own. They carry no place to come back to.
    fn before(&mut self, _usage: Usage, _out: &mut BytesMut) {}
    /// Whether it wants to be told what happens to the stream.
    fn follows(&self) -> bool {
        false
    }
    /// Something happened to the stream; told only where it is followed.
    fn change(&mut self, _change: Change, _out: &mut BytesMut) {}
    /// What has to be said before an event, in frames of its own. They carry no place to come back to.
    fn opening(&mut self, _event: &Event<'_>, _out: &mut BytesMut) {}
    /// One event.
    fn event(&mut self, event: &Event<'_>, out: &mut BytesMut);
    /// All choices ended well, the first of them so: before the last counts, and also where the client
    /// was told of its end before.
    fn ended_well(&mut self, _first: End) {}
    /// The last counts, before the ending, where they are a frame of their own. Not called where it ends
    /// badly before any token was made.
    fn usage(&mut self, _usage: Usage, _out: &mut BytesMut) {}
    /// The same before a bad ending.
    fn usage_so_far(&mut self, _end: End, usage: Usage, out: &mut BytesMut) {
        self.usage(usage, out);
    }
    /// All choices ended well.
    fn close(&mut self, usage: Usage, out: &mut BytesMut);
    /// It ended badly after bytes were sent.
    fn fail(&mut self, end: End, usage: Usage, out: &mut BytesMut);
    /// The frame that follows `fail`'s, where there is one.
    fn after_fail(&self) -> &'static str {
        ""
    }
    /// It was refused after the head was sent and before anything else was said.
    fn refuse(&mut self, error: &ApiError, out: &mut BytesMut);
    /// It waits; 1 = the next to be let in.
    fn queued(&self, position: usize, out: &mut BytesMut);
    /// Nothing is wrong.
    fn ping(&self, out: &mut BytesMut);
    /// The whole answer at once.
    fn whole(&self, answers: &[Answer], tokenizer: &Tokenizer, usage: Usage, out: &mut BytesMut);
    /// It ended badly before bytes were sent.
    fn refusal(&self, end: End) -> ApiError;
}

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
