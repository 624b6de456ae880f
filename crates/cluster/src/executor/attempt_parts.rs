//! Parts of an attempt: of its request, of its updates and of each choice.

use engine::RequestUpdate;
use generate::embedding::EmbeddingVector;
use generate::remote_request::RequestOrigin;
use stream::End;

/// Part of its request that an attempt keeps.
#[derive(Clone)]
pub(super) struct AttemptRequest {
    /// The stream, if another gateway can continue it.
    pub(super) origin: Option<RequestOrigin>,
    /// Number of the first log's choice among those of the prompt.
    pub(super) first_choice: u32,
    /// Whether tokens have log-probabilities.
    pub(super) logprobs: bool,
    /// Alternatives of each token.
    pub(super) top_n: usize,
    /// Where the vector of an embedding is before the log ends; `None`: the request is for tokens.
    pub(super) vector: Option<EmbeddingVector>,
}

impl AttemptRequest {
    /// The vector that is sent with the end; `None`: there is none.
    pub(super) fn vector(&self) -> Option<&[f32]> {
        self.vector.as_ref()?.get().map(|vector| &**vector)
    }
}

/// Control updates of an attempt.
#[derive(Clone, Default)]
pub(super) struct AttemptUpdates {
    /// Updates that the engine's requests had got when the attempt began.
    pub(super) before: u32,
    /// Updates since then.
    pub(super) ordered: u32,
    /// All updates, merged.
    pub(super) merged: RequestUpdate,
    /// Whether an update since the submission had tokens to inject.
    pub(super) has_injected: bool,
}

/// Part of one choice that the gateway has, and what it gets next.
#[derive(Clone, Copy, Default)]
pub(super) struct SentChoice {
    /// Number of the log in the generation.
    pub(super) log: usize,
    /// Items of the log that the first gateway gave. The engine has no log-probabilities of them.
    pub(super) uncomputed: u32,
    /// Items of the log that the gateway gave.
    pub(super) given: u32,
    /// Whether the gateway gave the end, or another gateway has adopted the choice: nothing is sent.
    pub(super) is_given_end: bool,
    /// Items of the log that the gateway gave or that were sent.
    pub(super) sent: u32,
    /// Whether the gateway gave the end, or it was sent.
    pub(super) is_end_sent: bool,
    /// Items of the log that the gateway accepted; may be more than there are.
    pub(super) credit: u64,
    /// Items of the log that can be sent.
    pub(super) ready: u32,
    /// The end, if it can be sent.
    pub(super) ready_end: Option<End>,
}

impl SentChoice {
    /// A choice of which the gateway has so many items.
    pub(super) fn from_index(given: u32) -> Self {
        Self {
            uncomputed: given,
            given,
            sent: given,
            ..Self::default()
        }
    }
}
