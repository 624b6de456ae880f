//! Events of a stream: the only interface between the output pipeline and the encoders of all wire protocols.

use crate::error::ApiError;
use crate::images::DescriptionState;
use crate::output::pipeline::PlacedPart;
use crate::output::position::Position;
use crate::stream_source::{Change, StartedGeneration};
use engine::{Progress, Token, TopLogprob};
use std::time::{Duration, Instant};
use stream::End;
use text::{Part, Tokenizer};

/// One step of a stream for a client.
pub enum Event<'a> {
    /// The request waits for a permit.
    Queued {
        /// 1 = the next to be admitted.
        position: usize,
    },
    /// The model is being loaded.
    Loading {
        /// `queued` or `loading`.
        state: &'static str,
        /// Progress of the load.
        percent: u64,
    },
    /// An image is on its way to its description by another model.
    Image {
        /// Number of the image, from 0.
        index: usize,
        /// Images of the request.
        count: usize,
        /// How far it is.
        state: DescriptionState,
    },
    /// The stream begins; no output of any choice was emitted.
    Opened {
        /// Number of choices.
        choices: usize,
        /// Usage so far.
        usage: Usage,
    },
    /// A client resumed the stream at these positions. Sent instead of `Opened`.
    Resumed {
        /// Position in each choice.
        positions: &'a [Position],
    },
    /// The engine has begun the prefill. Emitted once.
    Started {
        /// Start of the first prompt's prefill.
        at: Instant,
    },
    /// The stream was parked, paused or resumed. Only for encoders that follow state changes.
    StateChanged(Change),
    /// Text of one choice.
    Delta(Delta<'a>),
    /// Part of a tool call of one choice.
    ToolCall(ToolCall<'a>),
    /// One choice ended well. Emitted once per choice, after the last delta of the choice.
    ChoiceEnded {
        /// Index of the choice.
        choice: usize,
        /// `Stop` or `Length`; any other end ends the whole stream.
        end: End,
        /// Usage up to here.
        usage: Usage,
        /// Tokens of this choice.
        tokens: u64,
        /// Position of a client that has this event.
        position: Position,
    },
    /// Final usage, before the end. Not emitted where the stream failed before the first token.
    Usage {
        /// End of the first choice, or the failure of the stream.
        end: Option<End>,
        /// Usage of the whole stream.
        usage: Usage,
    },
    /// All choices ended well.
    Finished {
        /// End of the first choice.
        end: Option<End>,
        /// Usage of the whole stream.
        usage: Usage,
    },
    /// The stream failed after being opened.
    Failed {
        /// The failure.
        end: End,
        /// Usage of the whole stream.
        usage: Usage,
    },
    /// The request was rejected after the response head was sent and before the stream was opened.
    Rejected(&'a ApiError),
}

impl<'a> Event<'a> {
    /// A part of a choice.
    pub fn from_part(part: &PlacedPart<'a>, origin: PartOrigin<'a>) -> Self {
        let delta = |kind, text| Self::Delta(Delta { kind, text, origin });
        let (index, part) = match part.part {
            Part::Content(text) => return delta(DeltaKind::Text, text),
            Part::Reasoning(text) => return delta(DeltaKind::Reasoning, text),
            Part::CallStart { index, id, name } => {
                let id = id.unwrap_or_default();
                (index, ToolCallPart::Start { id, name })
            }
            Part::CallArguments { index, fragment } => (index, ToolCallPart::Args(fragment)),
            Part::CallEnd { index } => (index, ToolCallPart::End),
        };
        Self::ToolCall(ToolCall {
            index,
            part,
            origin,
        })
    }

    /// Index of the choice of the event; `None` for an event of the whole stream.
    pub fn choice(&self) -> Option<usize> {
        match self {
            Self::Delta(Delta { origin, .. }) | Self::ToolCall(ToolCall { origin, .. }) => {
                Some(origin.choice)
            }
            Self::ChoiceEnded { choice, .. } => Some(*choice),
            _ => None,
        }
    }

    /// Usage up to an event of one choice.
    pub fn usage(&self) -> Option<Usage> {
        match self {
            Self::Delta(Delta { origin, .. }) | Self::ToolCall(ToolCall { origin, .. }) => {
                Some(origin.usage)
            }
            Self::ChoiceEnded { usage, .. } => Some(*usage),
            _ => None,
        }
    }

    /// Position of a client that has this event, in the choice of the event.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Delta(Delta { origin, .. }) | Self::ToolCall(ToolCall { origin, .. }) => {
                Some(origin.position)
            }
            Self::ChoiceEnded { position, .. } => Some(*position),
            _ => None,
        }
    }
}

/// Receives the events of choices.
pub trait EventSink {
    /// Takes the next event; false ends the turn.
    fn emit(&mut self, event: Event<'_>) -> bool;
    /// Takes an event that the client received earlier, for encoders that depend on earlier output. Only parts of
    /// choices; their usage differs from that of the first emission.
    fn replay(&mut self, _event: &Event<'_>) {}
}

impl<F: FnMut(Event<'_>) -> bool> EventSink for F {
    fn emit(&mut self, event: Event<'_>) -> bool {
        self(event)
    }
}

/// Content or reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaKind {
    /// Content, for the user.
    Text,
    /// Reasoning of the model.
    Reasoning,
}

/// Final text and the tokens of the text.
pub struct Delta<'a> {
    /// Content or reasoning.
    pub kind: DeltaKind,
    /// May be empty when only log-probabilities are new.
    pub text: &'a str,
    /// Position and tokens.
    pub origin: PartOrigin<'a>,
}

/// Part of a tool call and the tokens of the part. The tool calls of a choice do not overlap.
pub struct ToolCall<'a> {
    /// Index of the tool call in the choice.
    pub index: u32,
    /// Name, arguments or end.
    pub part: ToolCallPart<'a>,
    /// Position and tokens.
    pub origin: PartOrigin<'a>,
}

/// Parts of a tool call, in the order of emission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallPart<'a> {
    /// Once.
    Start {
        /// Id of the call.
        id: &'a str,
        /// Name of the tool.
        name: &'a str,
    },
    /// Any number of times. The fragments of a complete call are one JSON value.
    Args(&'a str),
    /// Once; also after a truncated call.
    End,
}

/// Position of a part of a choice, and the tokens of the part.
#[derive(Clone, Copy)]
pub struct PartOrigin<'a> {
    /// Index of the choice.
    pub choice: usize,
    /// One entry per token whose text is emitted, if log-probabilities were requested.
    pub logprobs: Logprobs<'a>,
    /// Usage up to here.
    pub usage: Usage,
    /// Position in the choice of a client that has this part.
    pub position: Position,
    /// Index in the choice of the first token that was not part of an earlier event.
    pub first: u64,
    /// Number of new tokens. 0 = more text of earlier tokens, or text without tokens.
    pub tokens: u64,
}

/// Log-probabilities of consecutive tokens.
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
    /// Each token with alternatives.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Entry, &'a [TopLogprob])> + Clone + use<'a> {
        let (top, n) = (self.top, self.top_n);
        self.entries
            .iter()
            .enumerate()
            .map(move |(i, entry)| (entry, &top[i * n..(i + 1) * n]))
    }
}

/// Log-probability of one token, and the start of the token's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The sampled token.
    pub token: Token,
    /// Bytes of decoded text before the token.
    pub start: u64,
    /// Characters of decoded text before the token.
    pub start_chars: u64,
}

/// Token counts and times of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Rows of images, among `prompt_tokens`.
    pub image_tokens: u64,
    /// Time in which the model's encoder computed those rows.
    pub encoding: Duration,
    /// Prompt tokens taken from the prefix cache.
    pub cached_tokens: u64,
    /// Generated tokens of all choices.
    pub completion_tokens: u64,
    /// Tokens of reasoning, among `completion_tokens`.
    pub reasoning_tokens: u64,
    /// Times of the start, the first token and the end.
    pub times: Times,
}

/// Times of a stream as the engine recorded them, to a step; `None` = not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Prefill of the first prompt began.
    pub started: Option<Instant>,
    /// First token of any choice.
    pub first_token: Option<Instant>,
    /// End of the last choice.
    pub ended: Option<Instant>,
}

impl Times {
    /// Times of a generation. Those from before a restart precede those of this process's requests.
    pub fn of(generation: &StartedGeneration) -> Self {
        let (engine, requests) = (&generation.engine, &generation.requests);
        let before = generation.resumed.as_ref();
        let at = |ns: u64| (ns > 0).then(|| engine.epoch() + Duration::from_nanos(ns));
        let stamps =
            |stamp: fn(&Progress) -> u64| requests.iter().map(move |r| at(stamp(&r.progress)));
        let all_ended = stamps(Progress::ended_ns).all(|at| at.is_some());
        let started = stamps(Progress::started_ns).flatten().min();
        let ended = stamps(Progress::ended_ns).flatten().max();
        Self {
            started: before.and_then(|counts| counts.started).or(started),
            first_token: stamps(Progress::first_token_ns).flatten().min(),
            ended: ended
                .filter(|_| all_ended)
                .or(before.and_then(|counts| counts.ended)),
        }
    }

    /// Time from the first token to the end.
    pub fn decoding(&self) -> Duration {
        match (self.first_token, self.ended) {
            (Some(first), Some(ended)) => ended.saturating_duration_since(first),
            _ => Duration::ZERO,
        }
    }
}
