//! Bounds and time limits.

use super::address::UpstreamAddress;
use engine::remote::RemoteInbox;
use std::sync::Arc;
use std::time::Duration;
use text::Tokenizer;

/// Upstreams of one model.
pub const UPSTREAMS_MAX: usize = 32;
/// Bytes of one event of a response.
pub(crate) const EVENT_BYTES_MAX: usize = 1 << 20;
/// Token ids in one event.
pub(crate) const EVENT_TOKENS_MAX: usize = 4096;
/// Bytes of an error response that are read, for the log.
pub(crate) const ERROR_BYTES_MAX: usize = 4096;
/// Bytes of a response about an upstream itself, such as its list of models.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 1 << 20;
/// Reports of calls that wait for the relay.
pub(crate) const REPORTS_MAX: usize = 256;

/// How upstreams are asked for tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamApi {
    /// By what an upstream says of itself: Millrace and llama.cpp's server are known, all others are `OpenAi`.
    #[default]
    Auto,
    /// OpenAI's completions with vLLM's `return_token_ids`.
    OpenAi,
    /// OpenAI's completions, whose text is covered by ids of the vocabulary here.
    OpenAiText,
    /// llama.cpp's own route `/completion`.
    LlamaCpp,
}

/// Upstreams of one model, and how they are used.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// At least one, at most [`UPSTREAMS_MAX`].
    pub addresses: Vec<UpstreamAddress>,
    /// How they are asked.
    pub api: UpstreamApi,
    /// Name of the model in requests; `None`: the only one that an upstream lists.
    pub model: Option<String>,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// Time to connect; also for the whole of a response about the upstream itself.
    pub connect_max: Duration,
    /// Time to the head of the response, which vLLM sends with the first token.
    pub head_max: Duration,
    /// Time without a byte of the body, after which the upstream counts as dead.
    pub silence_max: Duration,
    /// Time that a choice without an upstream waits for one.
    pub unplaced_max: Duration,
    /// Pause between two questions for the models of an upstream.
    pub probe_interval: Duration,
    /// Pause after a failed call; doubled with each further one, up to ten times.
    pub retry: Duration,
    /// Accepted calls without a token in between that may be cut before the choice fails: a request may be the reason.
    pub crashes_max: u32,
}

impl UpstreamConfig {
    /// These upstreams without a key.
    pub fn new(addresses: Vec<UpstreamAddress>) -> Self {
        Self {
            addresses,
            api: UpstreamApi::Auto,
            model: None,
            api_key: None,
            connect_max: Duration::from_secs(5),
            head_max: Duration::from_secs(600),
            silence_max: Duration::from_secs(120),
            unplaced_max: Duration::from_secs(60),
            probe_interval: Duration::from_secs(1),
            retry: Duration::from_millis(200),
            crashes_max: 3,
        }
    }
}

/// A model whose requests upstreams compute.
pub struct UpstreamModel {
    /// Ids that end an answer.
    pub eos: Arc<[u32]>,
    /// The vocabulary of the model.
    pub tokenizer: Arc<Tokenizer>,
    /// Requests of the model's handle.
    pub inbox: RemoteInbox,
}
