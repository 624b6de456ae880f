//! What a client can be told: the one vocabulary between the fold and every dialect.

use crate::output::pipeline::{Said, Told};
use crate::output::position::Position;
use crate::stream_source::Submitted;
use engine::{Handle, Progress, Token, TopLogprob};
use std::time::{Duration, Instant};
use stream::End;
use text::Tokenizer;

/// Something happened to one choice.
pub enum Event<'a> {
    /// Text became certain.
    Delta(Delta<'a>),
    /// Some of a tool call did.
    Call(Call<'a>),
    /// The choice ended well. Told once per choice, after its last delta.
    End {
        /// Which answer.
        choice: usize,
        /// `Stop` or `Length`: whatever else ends the whole generation.
        end: End,
        /// Counts up to here.
        usage: Usage,
        /// Tokens of this choice.
        tokens: u64,
        /// Where in this choice a client is that has it.
        reached: Position,
    },
}

impl<'a> Event<'a> {
    /// A part of a choice.
    pub fn of(told: &Told<'a>, at: At<'a>) -> Self {
        let said = match told.said {
            Said::Text(kind, text) => return Self::Delta(Delta { kind, text, at }),
            Said::CallStart { index, id, name } => (index, CallPart::Start { id, name }),
            Said::CallArgs { index, fragment } => (index, CallPart::Args(fragment)),
            Said::CallEnd { index } => (index, CallPart::End),
        };
        let (index, said) = said;
        Self::Call(Call { index, said, at })
    }

    /// Which answer it is of.
    pub fn choice(&self) -> usize {
        match self {
            Self::Delta(Delta { at, .. }) | Self::Call(Call { at, .. }) => at.choice,
            Self::End { choice, .. } => *choice,
        }
    }

    /// Counts up to here.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Delta(Delta { at, .. }) | Self::Call(Call { at, .. }) => at.usage,
            Self::End { usage, .. } => *usage,
        }
    }

    /// Where in its choice a client is that has it.
    pub fn reached(&self) -> Position {
        match self {
            Self::Delta(Delta { at, .. }) | Self::Call(Call { at, .. }) => at.reached,
            Self::End { reached, .. } => *reached,
        }
    }
}

/// Where events go.
pub trait Tell {
    /// The next one; false says "enough for one turn".
    fn event(&mut self, event: Event<'_>) -> bool;
    /// One that the client was told before, which comes back: for writers that have to know what
    /// was said. Only parts of choices, and their figures are not those of then.
    fn known(&mut self, _event: &Event<'_>) {}
}

impl<F: FnMut(Event<'_>) -> bool> Tell for F {
    fn event(&mut self, event: Event<'_>) -> bool {
        self(event)
    }
}

/// Whom a text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The user.
    Text,
    /// Nobody: the model thinks.
    Reasoning,
}

/// Text that became certain, and the tokens it came from.
pub struct Delta<'a> {
    /// Whom it is for.
    pub kind: Kind,
    /// May be empty when only log-probabilities are new.
    pub text: &'a str,
    /// Where it stands.
    pub at: At<'a>,
}

/// Some of a tool call, and the tokens it came from. Calls of a choice come one after the other.
pub struct Call<'a> {
    /// Counts the choice's calls.
    pub index: u32,
    /// Which part of it.
    pub said: CallPart<'a>,
    /// Where it stands.
    pub at: At<'a>,
}

/// Parts of a tool call, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPart<'a> {
    /// Once.
    Start {
        /// Id of the call.
        id: &'a str,
        /// Name of the tool.
        name: &'a str,
    },
    /// As often as there is more. A whole call's are one JSON value.
    Args(&'a str),
    /// Once; also after a call that was cut short.
    End,
}

/// Where a part of a choice stands, and what tokens it came from.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// Which answer.
    pub choice: usize,
    /// One entry per token whose text is out, where log-probabilities were asked for.
    pub logprobs: Logprobs<'a>,
    /// Counts up to here.
    pub usage: Usage,
    /// Where in this choice a client is that has it.
    pub reached: Position,
    /// Which of the choice's tokens is the first that was not part of an event before.
    pub first: u64,
    /// How many are new. 0 = the rest of what those before said, or text that came from none.
    pub tokens: u64,
}

/// Log-probabilities of some tokens in a row.
#[derive(Clone, Copy)]
pub struct Logprobs<'a> {
    /// For the texts of tokens.
    pub tokenizer: &'a Tokenizer,
    /// One entry per token.
    pub entries: &'a [Entry],
    /// `top_n` alternatives per entry, best first. (entries.len(), top_n)
    pub top: &'a [TopLogprob],
    /// Alternatives per entry.
    pub top_n: usize,
}

impl<'a> Logprobs<'a> {
    /// Each token with its alternatives.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Entry, &'a [TopLogprob])> + use<'a> {
        let (top, n) = (self.top, self.top_n);
        self.entries
            .iter()
            .enumerate()
            .map(move |(i, entry)| (entry, &top[i * n..(i + 1) * n]))
    }
}

/// One token's log-probability and where its text begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The sampled token.
    pub token: Token,
    /// Bytes of decoded text before it.
    pub start: u64,
    /// Characters of decoded text before it.
    pub start_chars: u64,
}

/// What is counted, and when it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Prompt tokens taken from the prefix cache.
    pub cached_tokens: u64,
    /// Generated tokens of all choices.
    pub completion_tokens: u64,
    /// Those of `completion_tokens` that were thought.
    pub reasoning_tokens: u64,
    /// When the generation began, emitted its first token and ended.
    pub times: Times,
}

/// When things happened, as the engine stamped them (to a step); `None` = not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The first prompt began to be computed.
    pub started: Option<Instant>,
    /// The first token of all.
    pub first_token: Option<Instant>,
    /// The last choice's end.
    pub ended: Option<Instant>,
}

impl Times {
    /// What a stream's requests were stamped with.
    pub fn of(engine: &Handle, requests: &[Submitted]) -> Self {
        let at = |ns: u64| (ns > 0).then(|| engine.epoch() + Duration::from_nanos(ns));
        let stamps =
            |stamp: fn(&Progress) -> u64| requests.iter().map(move |r| at(stamp(&r.progress)));
        let all_ended = stamps(Progress::ended_ns).all(|at| at.is_some());
        Self {
            started: stamps(Progress::started_ns).flatten().min(),
            first_token: stamps(Progress::first_token_ns).flatten().min(),
            ended: stamps(Progress::ended_ns)
                .flatten()
                .max()
                .filter(|_| all_ended),
        }
    }

    /// From the first token to the end.
    pub fn decoding(&self) -> Duration {
        match (self.first_token, self.ended) {
            (Some(first), Some(ended)) => ended.saturating_duration_since(first),
            _ => Duration::ZERO,
        }
    }
}
