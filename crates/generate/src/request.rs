//! What a request means, whichever format it came in. Made by a dialect's parser; everything in it
//! is within its bounds.

use crate::priority::Priority;
use crate::response_format::ResponseFormat;
use crate::tools::{ToolCalling, Tools};
use engine::SamplingParams;
use std::sync::Arc;
use std::time::Duration;
use text::{ConstrainedTool, Message};

/// Answers one request may ask for, over all its prompts.
pub const CHOICES_MAX: usize = 16;
/// Stop strings one request may give.
pub const STOPS_MAX: usize = 16;
/// Bytes of one stop string: what a stream may hold back.
pub const STOP_BYTES_MAX: usize = 256;
/// Ids in `stop_token_ids`.
pub const STOP_IDS_MAX: usize = 64;
/// Entries in `logit_bias`.
pub const LOGIT_BIAS_MAX: usize = 1024;
/// Alternatives per token.
pub const TOP_LOGPROBS_MAX: usize = 20;
/// Bytes of `cache_salt`: kept as long as the stream.
pub const CACHE_SALT_BYTES_MAX: usize = 256;
/// Messages in a conversation.
pub const MESSAGES_MAX: usize = 4096;
/// Parts in a message.
pub const PARTS_MAX: usize = 1024;

/// A request's meaning.
#[derive(Debug, PartialEq)]
pub struct GenerateRequest {
    /// One or several prompts, each answered `n` times.
    pub prompts: Vec<Prompt>,
    /// Answers per prompt.
    pub n: usize,
    /// How answers are generated.
    pub control: GenerationParams,
    /// How answers are delivered.
    pub delivery: StreamOptions,
}

impl GenerateRequest {
    /// Answers in all.
    pub fn choices(&self) -> u32 {
        u32::try_from(self.prompts.len() * self.n).unwrap_or(u32::MAX)
    }
}

/// How the answer is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationParams {
    /// Temperature, top-p, penalties and the like.
    pub sampling: SamplingParams,
    /// `None`: as many as the context has room for. 0 only of a prompt that is scored.
    pub max_tokens: Option<usize>,
    /// Stop strings.
    pub stops: Vec<String>,
    /// Token ids that end an answer.
    pub stop_token_ids: Vec<u32>,
    /// With `stop_token_ids`, those alone stop; without, the sampling says it.
    pub ignore_eos: bool,
    /// `None`: a fresh one.
    pub seed: Option<u64>,
    /// What the answer must look like, if not just anything.
    pub form: Option<ResponseFormat>,
    /// Whether objects have no other members than their schemas' `properties`, where nothing is said; `None`: as the
    /// server is set.
    pub closed_objects: Option<bool>,
    /// How it may call tools.
    pub calling: ToolCalling,
    /// The tools that its calls are bound to.
    pub bound: Vec<ConstrainedTool>,
    /// Tokens it may think, where its model marks that with tokens; `None`: as many as it likes.
    pub thinking_max: Option<u64>,
    /// The prompt's tokens are told as the answer's first, with their log-probabilities.
    pub scored: bool,
}

impl GenerationParams {
    /// Takes over what a request says of tools and gives their definitions. Required tool calls replace the response
    /// format.
    pub fn calls(&mut self, tools: Tools) -> Vec<serde_json::Value> {
        self.calling = tools.calling;
        self.bound = tools.bound;
        self.form = tools.form.or(self.form.take());
        tools.definitions
    }
}

/// How the answer is handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Whether events are sent as they come.
    pub stream: bool,
    /// Whether the last event has the usage.
    pub include_usage: bool,
    /// Whether every event has the usage.
    pub continuous_usage: bool,
    /// The prompt's text comes first.
    pub echo: bool,
    /// The answer's end tells the ids of prompt and answer.
    pub context: bool,
    /// How urgent it is.
    pub class: Priority,
    /// How long the caller will wait, from the request's arrival.
    pub patience: Option<Duration>,
    /// The tier was named: the answer names the one it got.
    pub tier_named: bool,
    /// Nobody waits for it: it goes on without a client, as far as it goes.
    pub background: bool,
    /// What the answer repeats of the request, where the format does: the inside of a JSON object.
    pub repeats: Option<Arc<str>>,
    /// Not all of a prompt's answers are told.
    pub best: Option<BestOf>,
    /// Fields of the request that nothing read.
    pub ignored: IgnoredFields,
    /// Shares cached prompts only with requests that give the same salt; at most [`CACHE_SALT_BYTES_MAX`].
    pub cache_salt: Option<Box<str>>,
}

/// Names of request fields without effect, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields(Option<Arc<str>>);

impl IgnoredFields {
    /// Of a list of names, which may be empty.
    pub fn new(names: &str) -> Self {
        Self((!names.is_empty()).then(|| names.into()))
    }

    /// The names, if there are any.
    pub fn names(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Adds fields that were read and had no effect.
    pub fn add(&mut self, names: &[&'static str]) {
        if !names.is_empty() {
            let all: Vec<&str> = names.iter().copied().chain(self.names()).collect();
            self.0 = Some(all.join(", ").into());
        }
    }
}

/// Of a prompt's answers only the likeliest are told, the likeliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestOf {
    /// Answers that are emitted.
    pub told: usize,
    /// Answers that are generated.
    pub of: usize,
    /// Log-probabilities were asked for: they are there in any case, to choose by.
    pub logprobs: bool,
}

/// One prompt.
#[derive(Debug, Hash, PartialEq)]
pub enum Prompt {
    /// Messages, for the model's chat template.
    Conversation {
        /// What it came in, for who is told what is wrong with it.
        field: &'static str,
        /// Turns of the conversation.
        messages: Vec<Message>,
        /// What the model may call, in OpenAI's shape.
        tools: Vec<serde_json::Value>,
        /// The answer continues the last message, which is the assistant's and has some text.
        continues: bool,
        /// Variables of the template (`chat_template_kwargs`).
        kwargs: serde_json::Map<String, serde_json::Value>,
    },
    /// One turn that goes on after these ids.
    Continued {
        /// Ids of the earlier turns.
        context: Vec<u32>,
        /// The turn that follows.
        then: Box<Prompt>,
    },
    /// Parts of a template and what was typed, in order.
    Pieces(Vec<PromptPiece>),
    /// Text as it is.
    Text(String),
    /// Ids as they are.
    Ids(Vec<u32>),
}

/// A part of a prompt.
#[derive(Debug, Hash, PartialEq)]
pub enum PromptPiece {
    /// Of a template: the texts of control tokens in it are control tokens.
    Written(String),
    /// By a person: all of it is text. Shared by all its places.
    Typed(Arc<str>),
}

impl PromptPiece {
    /// Bytes of its text.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Written(text) => text.len(),
            Self::Typed(text) => text.len(),
        }
    }
}
