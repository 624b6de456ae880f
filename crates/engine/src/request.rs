//! Requests to the engine: prompt, sampling parameters, choices, and the caller's callbacks.

use crate::remote_record::RemoteRecord;
use crate::{DryBreakers, Embedding, MediaInput, Progress, SequencePermits, Terms};
use model::AdapterSet;
use std::sync::Arc;
use std::time::Instant;
use stream::Writer;

/// A generated token, an item of a token log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Token {
    /// The token id.
    pub id: u32,
    /// Natural logarithm of the probability before sampling filters; NaN where not requested.
    pub logprob: f32,
}

/// An alternative to a generated token, an item of a choice's side log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TopLogprob {
    /// The token id.
    pub id: u32,
    /// Natural logarithm of the probability.
    pub logprob: f32,
}

/// Sampling parameters. Each field names the value that turns it off.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 = greedy.
    pub temperature: f32,
    /// 0 = off.
    pub top_k: u32,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub min_p: f32,
    /// 1 = off.
    pub typical_p: f32,
    /// 1 = off. Divides positive logits, multiplies negative ones (Keskar et al. 2019, CTRL).
    pub repetition_penalty: f32,
    /// 0 = off.
    pub presence_penalty: f32,
    /// 0 = off.
    pub frequency_penalty: f32,
    /// Last tokens that the penalties count (prompt included for repetition, generated ones only for
    /// presence and frequency, as in OpenAI's API). 0 = all tokens.
    pub penalty_window: u32,
    /// DRY: factor of the penalty for prolonging a repetition. 0 = off.
    pub dry_multiplier: f32,
    /// DRY: growth of the penalty with each repeated token; at least 1.
    pub dry_base: f32,
    /// DRY: repeated tokens that are not penalized.
    pub dry_allowed_length: u32,
    /// DRY: last tokens in which repetitions are looked for, at most [`DRY_WINDOW_MAX`](crate::DRY_WINDOW_MAX). 0 = as many as that.
    pub dry_window: u32,
    /// DRY: token sequences over which no repetition reaches back.
    pub dry_breakers: DryBreakers,
    /// XTC: probability that the likeliest tokens are excluded. 0 = off.
    pub xtc_probability: f32,
    /// XTC: tokens of at least this probability are excluded, except for the least likely of them. Above 0.5 = off.
    pub xtc_threshold: f32,
    /// Added to logits, by token id.
    pub logit_bias: Vec<(u32, f32)>,
    /// Equal seeds give equal tokens. Choice `i` of a request uses stream `i` of the seed.
    pub seed: u64,
    /// End-of-sequence tokens are masked until this many tokens were generated.
    pub min_tokens: u32,
    /// Generation goes on after an end-of-sequence token, which is then an ordinary token.
    pub ignore_eos: bool,
    /// Number of the prompt's last tokens that are the beginning of an answer to continue: random numbers, penalties
    /// and `min_tokens` count them as generated. An answer that is cut anywhere and requested again from
    /// there continues with the same tokens. At most the prompt's length.
    pub answered: u32,
    /// Whether `Token::logprob` is computed.
    pub logprobs: bool,
    /// Alternatives per token in the side log; 0 = none.
    pub top_logprobs: u32,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_window: 64,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_window: 0,
            dry_breakers: DryBreakers::default(),
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            logit_bias: Vec::new(),
            seed: 0,
            min_tokens: 0,
            ignore_eos: false,
            answered: 0,
            logprobs: false,
            top_logprobs: 0,
        }
    }
}

/// A stop condition on the text of a choice (stop strings). Called on the
/// engine thread: must be quick and must not wait. A panic ends only the condition's request.
pub trait StopCondition: Send {
    /// Accepts the next token. Returns the index of the stop string that is complete, if one is.
    fn push(&mut self, token: u32) -> Option<u16>;
}

/// An output constraint: restricts the next token (a grammar).
pub trait Constraint: Send {
    /// Writes the allowed set: bit `id % 32` of word `id / 32`. `allowed` has
    /// `vocab.div_ceil(32)` words, all zero. Returns false when every token is allowed.
    fn mask(&mut self, allowed: &mut [u32]) -> bool;
    /// Accepts the token that was sampled.
    fn accept(&mut self, token: u32);
    /// Accepts the beginning of an answer that is resumed: the state afterwards is the one after [`Constraint::accept`]
    /// of each token. No mask is requested in between, so an implementation need not prepare one.
    fn replay(&mut self, tokens: &[u32]) {
        tokens.iter().for_each(|&token| self.accept(token));
    }
    /// Whether the text is complete: only end-of-sequence may follow.
    fn is_complete(&self) -> bool;
    /// Appends forced tokens, at most `most`: each is the only token that the mask of the position allows.
    /// They are verified several at a time in one forward pass; appending none changes no answer. Never
    /// waits.
    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        let _ = (most, into);
    }
}

/// One choice of a request. The choices of a request share the prompt's pages.
pub struct Choice {
    /// Log of the tokens, with capacity for `max_tokens` more. The log of a resumed answer begins with the tokens so far.
    pub tokens: Writer<Token>,
    /// Side log of the alternatives, exactly `top_logprobs` items per token, appended before the token.
    /// `None` when `top_logprobs` is 0.
    pub top: Option<Writer<TopLogprob>>,
    /// Stop condition on the text. Of a resumed answer: after the tokens so far.
    pub terminator: Option<Box<dyn StopCondition>>,
    /// Output constraint. Of a resumed answer: after the tokens so far ([`Constraint::replay`]).
    pub constraint: Option<Box<dyn Constraint>>,
}

impl Choice {
    /// A choice with this log and nothing else.
    pub fn new(tokens: Writer<Token>) -> Self {
        Self {
            tokens,
            top: None,
            terminator: None,
            constraint: None,
        }
    }
}

/// A request to the engine.
#[derive(Default)]
pub struct Request {
    /// Prompt ids: at least one, fewer than the context length.
    pub prompt: Vec<u32>,
    /// Inputs for the model's encoder, whose rows take the place of tokens of the prompt: ascending, without overlap. At most
    /// [`MEDIA_INPUTS_MAX`](crate::MEDIA_INPUTS_MAX).
    pub media: Vec<MediaInput>,
    /// Sampling parameters, for all choices.
    pub sampling: SamplingParams,
    /// Most tokens to generate per choice; at least one. The end-of-sequence token is not
    /// appended to the log and does not count.
    pub max_tokens: usize,
    /// End-of-sequence ids.
    pub eos: Arc<[u32]>,
    /// One or more choices; for an embedding exactly one, whose log stays empty.
    pub choices: Vec<Choice>,
    /// Number of the first choice among the choices of its prompt, for random numbers: a resumed answer has one request
    /// per choice, which draws the numbers of that choice. 0 where a request has all choices of its prompt.
    pub first_choice: u32,
    /// Whether the request is submitted paused, as by [`crate::Handle::pause`] before its first step.
    pub paused: bool,
    /// Requests the prompt's embedding instead of generated tokens.
    pub embedding: Option<Embedding>,
    /// Time at which the request ends with `End::Deadline`.
    pub deadline: Option<Instant>,
    /// Tokens that a choice may be ahead of the tokens accepted by the reader before the choice is parked; 0 =
    /// no limit.
    pub credit_window: u64,
    /// Adapters that change the model for this request.
    pub adapters: AdapterSet,
    /// Terms of service.
    pub terms: Terms,
    /// Progress, written by the engine.
    pub progress: Arc<Progress>,
    /// Permits of the choices; `None`: they need none. Dropped together with `held`.
    pub permits: Option<Box<dyn SequencePermits>>,
    /// A value whose drop releases the caller's resources. Dropped when all pages of the request are free, before the last
    /// log ends; also when the engine panics. The drop must be quick and must not wait.
    pub held: Option<Box<dyn Send>>,
    /// The request as a record for an engine of another process. Required by a handle of [`crate::remote`]; an engine of
    /// this process ignores it.
    pub remote: Option<RemoteRecord>,
}

impl Request {
    /// A request of this prompt for at most so many tokens, with default sampling parameters, and without choices, limits
    /// and adapters.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self {
            prompt,
            max_tokens,
            ..Self::default()
        }
    }
}

/// A rejected request with the reason.
pub enum Rejected {
    /// The inbox is full: try again later.
    Full(Box<Request>),
    /// The engine is shutting down.
    Closed(Box<Request>),
    /// Fields of the request break bounds; the message names each field with its bound.
    Invalid(Box<Request>, String),
}

impl std::fmt::Debug for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(_) => f.write_str("Full"),
            Self::Closed(_) => f.write_str("Closed"),
            Self::Invalid(_, why) => write!(f, "Invalid({why})"),
        }
    }
}

/// Tokens appended by one update (4 bytes each).
pub const INJECT_TOKENS_MAX: usize = 1024;

/// Updates that wait for the next step, or for their request's first token. More are rejected.
pub const UPDATES_MAX: usize = 256;

/// An update of a running request. `None`: unchanged.
///
/// An update takes effect at the head of a step, when every choice has a first token: the next token is sampled with
/// the new parameters, after the injected tokens. These are in the log like sampled tokens (with no log-probability),
/// count as generated, and may end a choice (by length or a stop string). A constraint holds: the first injected token
/// that the constraint does not allow is left out, with all later tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestUpdate {
    /// As [`SamplingParams::temperature`].
    pub temperature: Option<f32>,
    /// As [`SamplingParams::top_k`].
    pub top_k: Option<u32>,
    /// As [`SamplingParams::top_p`].
    pub top_p: Option<f32>,
    /// As [`SamplingParams::min_p`].
    pub min_p: Option<f32>,
    /// As [`SamplingParams::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// As [`SamplingParams::presence_penalty`].
    pub presence_penalty: Option<f32>,
    /// As [`SamplingParams::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// Token ids appended to each choice, at most [`INJECT_TOKENS_MAX`].
    pub inject: Vec<u32>,
}

/// The reason why an update was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateRejected {
    /// Too many updates wait: try again later.
    Full,
    /// A bound is broken; the message names the field and the bound.
    Invalid(String),
}

impl RequestUpdate {
    /// Applies the update to these parameters, without the injected tokens.
    pub fn change(&self, sampling: &mut SamplingParams) {
        let set = |value: &mut f32, new: Option<f32>| *value = new.unwrap_or(*value);
        set(&mut sampling.temperature, self.temperature);
        set(&mut sampling.top_p, self.top_p);
        set(&mut sampling.min_p, self.min_p);
        set(&mut sampling.repetition_penalty, self.repetition_penalty);
        set(&mut sampling.presence_penalty, self.presence_penalty);
        set(&mut sampling.frequency_penalty, self.frequency_penalty);
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
    }

    /// Replaces the parameters that a later update sets. The injected tokens stay as they are.
    pub fn override_with(&mut self, later: &Self) {
        let set = |value: &mut Option<f32>, new: Option<f32>| *value = new.or(*value);
        set(&mut self.temperature, later.temperature);
        set(&mut self.top_p, later.top_p);
        set(&mut self.min_p, later.min_p);
        set(&mut self.repetition_penalty, later.repetition_penalty);
        set(&mut self.presence_penalty, later.presence_penalty);
        set(&mut self.frequency_penalty, later.frequency_penalty);
        self.top_k = later.top_k.or(self.top_k);
    }
}
