//! What a stream was opened with.

use stream::Owner;
use wire::format::Format;
use wire::framing::Framing;
use wire::openai::chat_encoder::ReasoningField;

/// How a stream is delivered and to whom it belongs.
pub(crate) struct StreamTerms {
    pub(crate) owner: Owner,
    /// The dialect it was opened in.
    pub(crate) format: Format,
    /// How its answer is cut into frames.
    pub(crate) framing: Framing,
    pub(crate) reasoning_field: ReasoningField,
    /// The stream goes on without its client, and is retained after its end.
    pub(crate) resumable: bool,
    /// The stream becomes resumable when its client does not read for too long (`backpressure.policy: detach`).
    pub(crate) detachable: bool,
    /// Credit comes from the client's acknowledgements alone.
    pub(crate) explicit_acks: bool,
    /// Tokens a choice may be ahead; 0 = no limit.
    pub(crate) credit_window: u64,
    /// Tokens it may make beyond that once its client is gone, per choice and once.
    pub(crate) detached_tokens: u64,
}
