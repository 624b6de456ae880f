//! What an engine of another process reports, and why its tokens are rejected.

use crate::Phase;

/// What an engine of another process reports of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedProgress {
    /// Phase.
    pub phase: Phase,
    /// Prompt tokens whose keys and values exist.
    pub prompt_done: u64,
    /// Prompt tokens that were taken from the prefix cache.
    pub cached_tokens: u64,
}

/// Why a token, or a vector, cannot belong to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// There is no such choice, or the choice has ended.
    NoChoice,
    /// The choice has all its tokens.
    Full,
    /// The id is not in the vocabulary.
    UnknownToken,
    /// Not as many alternatives as the request has per token.
    Alternatives,
    /// The request is for an embedding, and has no tokens.
    Embedding,
    /// A vector of another length than the model's, or with an entry that is not finite.
    Vector,
}
