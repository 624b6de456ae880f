//! Terms on which a stream was opened.

use stream::Owner;
use wire::framing::Framing;
use wire::openai::chat_encoder::ReasoningField;
use wire::protocol::Protocol;

/// Delivery options and owner of a stream.
pub struct StreamTerms {
    /// Owner of the stream.
    pub owner: Owner,
    /// Wire protocol of the request.
    pub protocol: Protocol,
    /// Framing of the response.
    pub framing: Framing,
    /// Field of chat messages with the reasoning.
    pub reasoning_field: ReasoningField,
    /// The stream continues without a client, and is retained after the end.
    pub resumable: bool,
    /// The stream becomes resumable when the client does not read for too long (`backpressure.policy: detach`).
    pub detachable: bool,
    /// Credit comes from the client's acknowledgements alone.
    pub explicit_acks: bool,
    /// Tokens a choice may be ahead; 0 = no limit.
    pub credit_window: u64,
    /// Tokens that a detached stream may generate beyond the credit window, per choice and once.
    pub detached_tokens: u64,
}
