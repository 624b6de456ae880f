//! Metadata that is fixed when a stream is opened, as encoders and the output pipeline read it.

use crate::reported_sampling::ReportedSampling;
use crate::request::StreamOptions;
use std::time::Instant;
use stream::StreamId;

/// Metadata of one stream.
pub struct StreamMeta {
    /// Id of the stream.
    pub id: StreamId,
    /// Id of the response in the wire protocol.
    pub response_id: String,
    /// Seconds since the Unix epoch at which the stream was opened.
    pub created_unix_s: i64,
    /// Arrival of the request.
    pub arrived: Instant,
    /// Model name from the request.
    pub model: String,
    /// How events are delivered.
    pub stream_options: StreamOptions,
    /// Number of prompts.
    pub prompts: usize,
    /// Number of choices over all prompts.
    pub choices: usize,
    /// Sampling parameters, with the seed and the limit of tokens.
    pub sampling: ReportedSampling,
    /// Stop strings, in the order that a stop refers to.
    pub stops: Vec<String>,
    /// Whether log-probabilities are emitted.
    pub logprobs: bool,
    /// Alternatives per token.
    pub top_n: usize,
}

impl StreamMeta {
    /// Metadata of a request that waits for a model: no stream is open yet.
    pub fn unopened(model: &str, arrived: Instant) -> Self {
        Self {
            id: StreamId::from_random([0; 16]),
            response_id: String::new(),
            created_unix_s: 0,
            arrived,
            model: model.to_owned(),
            stream_options: StreamOptions::default(),
            prompts: 1,
            choices: 1,
            sampling: ReportedSampling::default(),
            stops: Vec::new(),
            logprobs: false,
            top_n: 0,
        }
    }
}
