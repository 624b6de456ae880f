//! What a caller asks of the engine.

use crate::{Embedding, Progress, SequencePermits, Terms};
use std::sync::Arc;
use std::time::Instant;
use stream::Writer;

/// One generated token, as it stands in a stream's log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// The token id.
    pub id: u32,
    /// Natural logarithm of its probability before sampling filters; NaN where not asked for.
    pub logprob: f32,
}

/// One alternative of a generated token, as it stands in a choice's side log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopLogprob {
    /// The token id.
    pub id: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// How tokens are chosen. Validated and resolved by the caller; see each field for its "off" value.
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
    /// Tokens the penalties look back on (prompt included for repetition, generated only for
    /// presence and frequency, as OpenAI has it). 0 = all of them.
    pub penalty_window: u32,
    /// Added to logits, by token id.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same tokens. Choice `i` of a request uses stream `i` of this seed.
    pub seed: u64,
    /// End-of-sequence tokens are masked until this many tokens were generated.
    pub min_tokens: u32,
    /// Generation goes on after an end-of-sequence token, which is then an ordinary token.
    pub ignore_eos: bool,
    /// How many of the prompt's last tokens are an answer that was begun: the draws' numbers, the penalties
    /// and `min_tokens` count them as generated. An answer that is cut anywhere and asked for again from
    /// there goes on with the same tokens. At most the prompt's length.
    pub answered: u32,
    /// Whether `Token::logprob` is wanted.
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

/// Decides, after each token, whether a choice's text is complete (a stop string). Runs on the
/// engine thread: quick, and without waiting. A panic ends its request only.
pub trait StopCondition: Send {
    /// Takes the next token; `Some(index)` when the stop string with that index is complete.
    fn push(&mut self, token: u32) -> Option<u16>;
}

/// Restricts which tokens may come next (a grammar).
pub trait Constraint: Send {
    /// Writes the allowed set: bit `id % 32` of word `id / 32`. `allowed` has
    /// `vocab.div_ceil(32)` words, all zero. Returns false when every token is allowed.
    fn mask(&mut self, allowed: &mut [u32]) -> bool;
    /// Takes the token that was chosen.
    fn accept(&mut self, token: u32);
    /// Whether the text is complete: only end-of-sequence may follow.
    fn is_complete(&self) -> bool;
    /// Adds the tokens that must come next, in order, `most` of them at most: each is all that the mask of its
    /// place leaves. They are verified in one forward pass, several at a time; to name none changes no answer.
    /// Never waits.
    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        let _ = (most, into);
    }
}

/// One answer of a request; a request with `n` choices shares its prompt's pages.
pub struct Choice {
    /// Where its tokens go. Room for at least `max_tokens` after what the log may hold already.
    pub tokens: Writer<Token>,
    /// Where its alternatives go, exactly `top_logprobs` items per token, appended before the
    /// token itself; after those of what the other log may hold already. `None` when `top_logprobs` is 0.
    pub top: Option<Writer<TopLogprob>>,
    /// Its stop condition on text.
    pub terminator: Option<Box<dyn StopCondition>>,
    /// Its grammar.
    pub constraint: Option<Box<dyn Constraint>>,
}

/// What a caller asks of the engine.
pub struct Request {
    /// Prompt ids: at least one, fewer than the context length.
    pub prompt: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Tokens to generate at most, per choice; at least one. The end-of-sequence token is not
    /// appended to the log and does not count.
    pub max_tokens: usize,
    /// End-of-sequence ids.
    pub eos: Arc<[u32]>,
    /// One or more answers; of an embedding exactly one, whose log stays empty.
    pub choices: Vec<Choice>,
    /// The prompt as a vector, instead of tokens after it.
    pub embedding: Option<Embedding>,
    /// When the caller's patience ends, if it said so: `End::Deadline`.
    pub deadline: Option<Instant>,
    /// Tokens a choice may be ahead of what its reader accepted before it is parked; 0 = no limit.
    pub credit_window: u64,
    /// How urgent it is, whose it is, how long it may take.
    pub terms: Terms,
    /// Where the engine writes how far it is.
    pub progress: Arc<Progress>,
    /// The places of its choices; `None`: they need none. Kept, and dropped, as `held` is.
    pub permits: Option<Box<dyn SequencePermits>>,
    /// Kept until the request's work is over, its pages free, and dropped then, before its last log says
    /// so; also when the engine dies. Its drop must be quick and must not wait.
    pub held: Option<Box<dyn Send>>,
}

/// Why a request was not taken. The request is handed back.
pub enum Rejected {
    /// The inbox is full: our capacity, try again later.
    Full(Box<Request>),
    /// The engine is shutting down.
    Closed(Box<Request>),
    /// The request breaks a bound; the words name the field and the bound.
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
