//! What an engine of another process reports: progress, and the vectors of embeddings; and why its tokens are rejected.

use super::RelayedRequest;
use crate::{Embedding, Phase};

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

impl RelayedRequest {
    /// Entries of the vector that the request is for; `None`: the request is for tokens.
    pub fn vector_len(&self) -> Option<usize> {
        self.embedding().map(|_| self.inbox.hidden_dim)
    }

    /// Whether the vector of an open request for an embedding is missing.
    pub fn lacks_vector(&self) -> bool {
        let embedding = self.embedding();
        embedding.is_some_and(|embedding| embedding.vector.get().is_none())
    }

    /// Gives the caller the vector. A repeated one has no effect.
    ///
    /// # Errors
    /// The request is open for no embedding, or the vector has another length than the model's, or an entry that is not
    /// finite.
    pub fn set_vector(&mut self, vector: &[f32]) -> Result<(), AppendError> {
        let embedding = self.embedding().ok_or(AppendError::NoChoice)?;
        let is_sound = vector.iter().all(|entry| entry.is_finite());
        if !is_sound || vector.len() != self.inbox.hidden_dim {
            return Err(AppendError::Vector);
        }
        // The first counts.
        let _ = embedding.vector.set(vector.into());
        Ok(())
    }

    fn embedding(&self) -> Option<&Embedding> {
        let pool = self.choices.first()?.as_ref()?.pool.as_ref()?;
        Some(pool.embedding())
    }
}
