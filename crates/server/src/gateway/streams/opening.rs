//! What a stream was opened with.

use crate::generate::ask::Delivery;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::openai::chat_frames::ReasoningField;
use std::time::Instant;
use stream::Owner;

/// What is known of a stream before it is started.
pub(crate) struct Opening {
    pub(crate) owner: Owner,
    /// The dialect it was opened in.
    pub(crate) format: Format,
    /// What its answer is called; empty: after the stream.
    pub(crate) response_id: String,
    /// How its answer is cut into frames.
    pub(crate) framing: Framing,
    pub(crate) created_unix_s: i64,
    pub(crate) arrived: Instant,
    pub(crate) model: String,
    pub(crate) delivery: Delivery,
    pub(crate) prompts: usize,
    /// Answers in all.
    pub(crate) choices: usize,
    pub(crate) stops: Vec<String>,
    pub(crate) logprobs: bool,
    pub(crate) top_n: usize,
    pub(crate) reasoning_field: ReasoningField,
    /// It goes on without its client, and is kept after its end.
    pub(crate) resumable: bool,
    /// It becomes resumable when its client takes nothing for too long (`backpressure.policy: detach`).
    pub(crate) detachable: bool,
    /// Credit comes from the client's acknowledgements alone.
    pub(crate) explicit_acks: bool,
    /// Tokens a choice may be ahead; 0 = no limit.
    pub(crate) credit_window: u64,
    /// Tokens it may make beyond that once its client is gone, per choice and once.
    pub(crate) detached_tokens: u64,
}
