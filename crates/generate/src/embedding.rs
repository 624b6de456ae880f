//! Requests for embeddings: a prompt as one vector. The log of such a request carries only the end.

use crate::error::ApiError;
use crate::model_handle::{AdapterUse, ModelHandle};
use crate::remote_request::RemoteRequest;
use engine::{Choice, Embedding, Request, Terms, Token};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use stream::Writer;

/// Where the vector of an embedding comes.
pub type EmbeddingVector = Arc<OnceLock<Box<[f32]>>>;

/// A prompt whose embedding is wanted.
#[derive(Debug)]
pub struct EmbeddingRequest {
    /// Ids of the prompt.
    pub prompt: Vec<u32>,
    /// Pooling, and where the vector comes.
    pub embedding: Embedding,
    /// When the request has to be done.
    pub deadline: Option<Instant>,
    /// Adapters that change the model.
    pub lora: Vec<AdapterUse>,
    /// Priority, fair share and clocks.
    pub terms: Terms,
}

impl EmbeddingRequest {
    /// The request for the model's engine. `tokens` has room for one token.
    ///
    /// # Errors
    /// The model does not have an adapter; or the engine is another process, and the prompt is too long for a record.
    pub fn into_request(
        self,
        model: &ModelHandle,
        tokens: Writer<Token>,
    ) -> Result<Request, ApiError> {
        let remote = if model.engine.is_remote() {
            Some(RemoteRequest::of_embedding(&self, model).encode()?)
        } else {
            None
        };
        Ok(Request {
            choices: vec![Choice::new(tokens)],
            embedding: Some(self.embedding),
            deadline: self.deadline,
            adapters: model.adapters.resolve(&self.lora)?,
            terms: self.terms,
            remote: remote.map(Into::into),
            ..Request::new(self.prompt, 1)
        })
    }
}
