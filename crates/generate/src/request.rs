//! A request's meaning, independent of wire protocols, with its priority class and the grammar that its answer must
//! match. A parser of a protocol builds the request; every value is within bounds.

use crate::error::ApiError;
use crate::images::ImagePart;
use crate::infill_prompt::InfillPrompt;
use crate::model_handle::AdapterUse;
use crate::prompt_limit::Truncation;
use crate::request_record::{SamplingFields, prompt_field, shared_text, verbatim};
use crate::tools::{OfferedTool, ToolCalling, Tools};
use engine::SamplingParams;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use text::{ConstrainedTool, GrammarError, GrammarSource, Message};

/// Answers per request, over all prompts.
pub const CHOICES_MAX: usize = 16;
/// Stop strings per request.
pub const STOPS_MAX: usize = 16;
/// Bytes of one stop string: output that a stream may hold back.
pub const STOP_BYTES_MAX: usize = 256;
/// Ids in `stop_token_ids`.
pub const STOP_IDS_MAX: usize = 64;
/// Strings in `dry_sequence_breakers`.
pub const DRY_BREAKERS_MAX: usize = 32;
/// Bytes of one of them.
pub const DRY_BREAKER_BYTES_MAX: usize = 40;
/// Entries in `logit_bias`.
pub const LOGIT_BIAS_MAX: usize = 1024;
/// Alternatives per token in OpenAI's protocols; the engine keeps up to [`engine::TOP_LOGPROBS_MAX`].
pub const TOP_LOGPROBS_MAX: usize = 20;
/// Bytes of `cache_salt`: kept as long as the stream.
pub const CACHE_SALT_BYTES_MAX: usize = 256;
/// Messages in a conversation.
pub const MESSAGES_MAX: usize = 4096;
/// Parts in a message.
pub const PARTS_MAX: usize = 1024;

/// A request for generated text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerateRequest {
    /// One or several prompts, each answered `n` times.
    pub prompts: Vec<Prompt>,
    /// Answers per prompt.
    pub n: usize,
    /// How answers are generated.
    pub params: GenerationParams,
    /// How answers are delivered.
    pub stream_options: StreamOptions,
    /// Images of all prompts, by the numbers that parts of messages and of prompts name. Not recorded: such a stream is not
    /// durable.
    #[serde(skip)]
    pub images: Vec<ImagePart>,
}

impl GenerateRequest {
    /// Number of answers over all prompts.
    pub fn choices(&self) -> u32 {
        u32::try_from(self.prompts.len() * self.n).unwrap_or(u32::MAX)
    }
}

/// How answers are generated. By default with the engine's sampling parameters and no limit but the context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationParams {
    /// Temperature, top-p, penalties and the like.
    #[serde(with = "SamplingFields")]
    pub sampling: SamplingParams,
    /// `None`: as many as the context has room for. 0 only with `prompt_logprobs`.
    pub max_tokens: Option<usize>,
    /// Texts over which the DRY penalty finds no repetition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_sequence_breakers: Vec<String>,
    /// Stop strings.
    pub stops: Vec<String>,
    /// Token ids that end an answer.
    pub stop_token_ids: Vec<u32>,
    /// With `stop_token_ids`, only those stop an answer; without, `sampling` decides.
    pub ignore_eos: bool,
    /// `None`: a random seed.
    pub seed: Option<u64>,
    /// Structured output: the grammar that the answer must match.
    #[serde(with = "verbatim::option")]
    pub response_format: Option<ResponseFormat>,
    /// Whether schemas that do not set `additionalProperties` forbid other members; `None`: the server's default.
    pub closed_objects: Option<bool>,
    /// How the answer may call tools.
    pub tool_calling: ToolCalling,
    /// Tools with calls that are constrained to their schemas.
    #[serde(with = "verbatim::list")]
    pub constrained_tools: Vec<ConstrainedTool>,
    /// Reasoning budget in tokens; `None`: unlimited.
    pub reasoning_budget: Option<u64>,
    /// The prompt's tokens are emitted as the answer's first, with their log-probabilities.
    pub prompt_logprobs: bool,
    /// Adapters that change the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lora: Vec<AdapterUse>,
    /// Truncation of prompts that are too long.
    #[serde(skip_serializing_if = "Truncation::is_disabled")]
    pub truncation: Truncation,
    /// The answer so far, of a request with one prompt and one choice. Not recorded: such a stream is not durable.
    #[serde(skip)]
    pub continued: Option<ContinuedAnswer>,
}

/// An answer that another process has begun with the same parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContinuedAnswer {
    /// Ids of the tokens so far: the answer begins with them.
    pub token_ids: Vec<u32>,
    /// Number of the choice, which selects the random numbers; below [`CHOICES_MAX`].
    pub choice: u32,
}

impl GenerationParams {
    /// Adds stop strings that the request does not have, as far as a request may have so many.
    pub fn add_stops(&mut self, stops: &[&str]) {
        for &stop in stops {
            let is_new = self.stops.iter().all(|known| known != stop);
            if is_new && self.stops.len() < STOPS_MAX {
                self.stops.push(stop.to_owned());
            }
        }
    }

    /// Moves the tools of a request into the parameters and returns their definitions. Required tool calls replace the response format.
    pub fn take_tools(&mut self, tools: Tools) -> Vec<serde_json::Value> {
        self.tool_calling = tools.calling;
        self.constrained_tools = tools.constrained;
        self.response_format = tools.response_format.or(self.response_format.take());
        tools.definitions
    }
}

/// Bytes of a conversation's id.
pub const CONVERSATION_ID_BYTES_MAX: usize = 128;

/// Bytes of a webhook's URL.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2048;

/// How answers are delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamOptions {
    /// Whether events are sent as they come.
    pub stream: bool,
    /// Whether the last event has the usage.
    pub include_usage: bool,
    /// Whether every event has the usage.
    pub continuous_usage: bool,
    /// The prompt's text is emitted first.
    pub echo: bool,
    /// The end of the answer reports the ids of prompt and answer.
    pub return_context: bool,
    /// Priority in the admission queue and in the scheduler.
    pub priority: Priority,
    /// Deadline of the whole request, from the arrival on.
    pub deadline: Option<Duration>,
    /// The request named a service tier, so the response names the tier used.
    pub service_tier_given: bool,
    /// The stream has no client: generation continues to the end without one.
    pub background: bool,
    /// The part of the request that a response of this wire protocol repeats: the inside of a JSON object.
    #[serde(with = "shared_text::option")]
    pub repeated_fields: Option<Arc<str>>,
    /// Returns only the likeliest answers of each prompt.
    pub best_of: Option<BestOf>,
    /// Client's id of the conversation, under which the running stream is found again; at most
    /// [`CONVERSATION_ID_BYTES_MAX`].
    pub conversation_id: Option<Box<str>>,
    /// Fields of the request without effect.
    pub ignored_fields: IgnoredFields,
    /// Tools whose calls have another form for the client than for the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub offered_tools: Vec<OfferedTool>,
    /// Shares cached prompts only with requests that give the same salt; at most [`CACHE_SALT_BYTES_MAX`].
    pub cache_salt: Option<Box<str>>,
    /// URL that receives an event when the stream has ended; at most [`WEBHOOK_URL_BYTES_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Box<str>>,
    /// Events have the ids of their tokens, and the first one those of the prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub return_token_ids: bool,
    /// Events have llama.cpp's counts and times (`timings_per_token`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timings: bool,
}

/// Names of request fields without effect, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IgnoredFields(#[serde(with = "shared_text::option")] Option<Arc<str>>);

impl IgnoredFields {
    /// Fields of this list of names, which may be empty.
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

/// Of a prompt's answers only the likeliest are emitted, in order of likelihood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestOf {
    /// Answers returned for each prompt.
    pub returned: usize,
    /// Answers generated for each prompt.
    pub generated: usize,
    /// Whether the request wants log-probabilities; they are computed in any case, to rank the answers.
    pub logprobs: bool,
}

/// Name of the request's field that holds a prompt. An alias, because serde takes a reference for borrowed input.
pub type PromptField = &'static str;

/// One prompt.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// Messages, for the model's chat template.
    Conversation {
        /// The request's field, for error messages.
        #[serde(with = "prompt_field")]
        field: PromptField,
        /// Turns of the conversation.
        #[serde(with = "verbatim::list")]
        messages: Vec<Message>,
        /// Tool definitions in OpenAI's shape.
        #[serde(default, with = "verbatim::list")]
        tools: Vec<serde_json::Value>,
        /// The answer continues the last message, which is the assistant's and not empty.
        #[serde(default)]
        continues: bool,
        /// Variables of the template (`chat_template_kwargs`).
        #[serde(default, with = "verbatim::value")]
        kwargs: serde_json::Map<String, serde_json::Value>,
    },
    /// A turn that follows earlier ids.
    Continued {
        /// Ids of the earlier turns.
        context: Vec<u32>,
        /// The turn that follows.
        then: Box<Prompt>,
    },
    /// Template text and user text, in order.
    Pieces(Vec<PromptPiece>),
    /// Text around a gap that the answer fills.
    Infill(InfillPrompt),
    /// Text without a template.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
    /// Texts and token ids, in order, without a template.
    Mixed(Vec<MixedPart>),
}

impl Prompt {
    /// Whether the model's chat template writes the prompt.
    pub fn is_conversation(&self) -> bool {
        match self {
            Self::Conversation { .. } => true,
            Self::Continued { then, .. } => then.is_conversation(),
            Self::Pieces(_) | Self::Infill(_) | Self::Text(_) | Self::Ids(_) | Self::Mixed(_) => {
                false
            }
        }
    }

    /// The request's field of the prompt, for error messages.
    pub(crate) fn field(&self) -> &'static str {
        match self {
            Self::Conversation { field, .. } => field,
            Self::Infill(prompt) => prompt.before_field(),
            Self::Continued { .. }
            | Self::Pieces(_)
            | Self::Text(_)
            | Self::Ids(_)
            | Self::Mixed(_) => "prompt",
        }
    }
}

/// Parts of a prompt of texts and token ids.
pub const MIXED_PARTS_MAX: usize = 4096;

/// A part of a prompt of texts and token ids.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixedPart {
    /// Text: names of control tokens become control tokens.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// A part of a prompt.
#[derive(Clone, Debug, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptPiece {
    /// Template text: names of control tokens become control tokens.
    Template(String),
    /// User text: names of control tokens stay text. Shared by all occurrences.
    User(#[serde(with = "shared_text")] Arc<str>),
    /// The image of this number among those of the request.
    Image(usize),
}

impl PromptPiece {
    /// Bytes of the text.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Template(text) => text.len(),
            Self::User(text) => text.len(),
            Self::Image(_) => 0,
        }
    }
}

/// Priority of a request. The order is the order of service.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before all others.
    Critical,
    /// Interactive: a person reads as tokens arrive.
    High,
    /// The default.
    #[default]
    Normal,
    /// May wait.
    Low,
    /// Only when no other request waits.
    Background,
}

impl Priority {
    /// All classes, in order of service.
    pub const ALL: [Self; 5] = [
        Self::Critical,
        Self::High,
        Self::Normal,
        Self::Low,
        Self::Background,
    ];

    /// Position in the order of service, from 0.
    pub fn index(self) -> u32 {
        self as u32
    }

    /// Name in requests and responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Background => "background",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|class| class.name().eq_ignore_ascii_case(name))
    }

    /// The class of OpenAI's `service_tier`; tiers without urgency are normal.
    pub fn from_service_tier(tier: &str) -> Self {
        match tier {
            "priority" => Self::High,
            "flex" => Self::Low,
            _ => Self::Normal,
        }
    }

    /// The class of vLLM's number: 0 is normal, lower is more urgent.
    pub fn from_number(number: i128) -> Self {
        match number {
            ..=-2 => Self::Critical,
            -1 => Self::High,
            0 => Self::Normal,
            1 => Self::Low,
            2.. => Self::Background,
        }
    }
}

/// The engine's class: admission and scheduling use one order.
impl From<Priority> for engine::Priority {
    fn from(class: Priority) -> Self {
        Self::ALL[class.index() as usize]
    }
}

/// When a thread for compiling a grammar may be available again.
const NO_THREAD_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The grammar that an answer must match, and the request's field of the grammar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseFormat {
    /// Schema, regular expression, choice or grammar.
    pub source: GrammarSource,
    /// The field that holds the source.
    pub field: String,
}

/// A response format that takes any JSON object.
pub fn any_object(field: &str) -> ResponseFormat {
    ResponseFormat {
        source: GrammarSource::JsonObject,
        field: field.to_owned(),
    }
}

impl ResponseFormat {
    /// The error of a response format whose grammar cannot be compiled.
    pub fn grammar_error(&self, error: &GrammarError) -> ApiError {
        if error.is_temporary() {
            let words = format!("{}: {}", self.field, error.why);
            return ApiError::capacity("overloaded", words, NO_THREAD_RETRY_AFTER);
        }
        let mut field = self.field.clone();
        if !error.place.is_empty() && !error.place.starts_with('[') {
            field.push('.');
        }
        field.push_str(&error.place);
        let code = match self.source.inner() {
            GrammarSource::JsonSchema(_) | GrammarSource::JsonObject | GrammarSource::Calls(..) => {
                "invalid_json_schema"
            }
            _ => "invalid_grammar",
        };
        ApiError::field(&field, code, format!("{field}: {}", error.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_names_round_trip() {
        for class in Priority::ALL {
            assert_eq!(Priority::from_name(class.name()), Some(class));
            assert_eq!(Priority::ALL[class.index() as usize], class);
            let engine = format!("{:?}", engine::Priority::from(class));
            assert_eq!(engine, format!("{class:?}"));
        }
        assert_eq!(Priority::from_name("HIGH"), Some(Priority::High));
        assert_eq!(Priority::from_name("urgent"), None);
        let tiers = [
            ("priority", Priority::High),
            ("flex", Priority::Low),
            ("default", Priority::Normal),
            ("auto", Priority::Normal),
        ];
        for (tier, class) in tiers {
            assert_eq!(Priority::from_service_tier(tier), class, "{tier}");
        }
        let numbers = [
            (i128::MIN, Priority::Critical),
            (-1, Priority::High),
            (0, Priority::Normal),
            (1, Priority::Low),
            (i128::MAX, Priority::Background),
        ];
        for (number, class) in numbers {
            assert_eq!(Priority::from_number(number), class, "{number}");
        }
    }
}
