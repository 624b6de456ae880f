//! What is fixed when a stream is opened and what encoders and the output pipeline read of that.

use crate::generate::ask::Delivery;
use std::time::Instant;
use stream::StreamId;

/// Metadata of one stream.
pub(crate) struct StreamMeta {
    pub(crate) id: StreamId,
    /// Id of the response in its wire protocol.
    pub(crate) response_id: String,
    pub(crate) created_unix_s: i64,
    /// Arrival of the request.
    pub(crate) arrived: Instant,
    /// Model name as the client gave it.
    pub(crate) model: String,
    pub(crate) delivery: Delivery,
    /// Number of prompts.
    pub(crate) prompts: usize,
    /// Number of choices over all prompts.
    pub(crate) choices: usize,
    pub(crate) stops: Vec<String>,
    /// Whether log-probabilities are emitted.
    pub(crate) logprobs: bool,
    /// Alternatives per token.
    pub(crate) top_n: usize,
}
