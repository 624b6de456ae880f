//! A program's model: a loaded model, and requests to the engine of that model.

use crate::trouble::Trouble;
use engine::{Embedding, Handle, Pooling, RequestId, SamplingParams, Terms, Token};
use generate::constraint::compiler::OutputConstraints;
use generate::embedding::{EmbeddingRequest, EmbeddingVector};
use generate::error::{ApiError, Blame};
use generate::model_handle::{DetokenizeOptions, ModelHandle, detokenize};
use generate::prompt::PreparedPrompt;
use generate::request::GenerationParams;
use generate::submit::{self, NoHost, Submission};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{End, FailCode, Reader};

/// A model for programs.
#[derive(Clone)]
pub struct Model {
    /// The loaded model.
    pub handle: ModelHandle,
    /// Pooling of hidden states; `None`: `forward` fails.
    pub pooling: Option<Pooling>,
}

/// Terms of the requests to the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTerms {
    pub(crate) terms: Terms,
    pub(crate) deadline: Option<Instant>,
    /// Credit window: tokens that the engine may be ahead of the program.
    pub(crate) ahead: u64,
    /// Tokens per request.
    pub(crate) tokens_max: usize,
}

/// A request to the engine that is cancelled on drop, with the reader of the request's token log.
pub(crate) struct SubmittedRequest {
    pub(crate) reader: Reader<Token>,
    id: RequestId,
    engine: Handle,
}

impl Drop for SubmittedRequest {
    fn drop(&mut self) {
        self.engine.cancel(self.id);
    }
}

impl Model {
    /// Requests a continuation of `prompt`. End-of-sequence tokens are ordinary tokens: the program interprets them.
    pub(crate) fn request_continuation(
        &self,
        prompt: &[u32],
        sampling: SamplingParams,
        terms: RequestTerms,
    ) -> Result<SubmittedRequest, Trouble> {
        self.expect_room(prompt)?;
        let seed = sampling.seed;
        let params = GenerationParams {
            sampling,
            max_tokens: Some(terms.tokens_max.max(1)),
            lora: self.handle.adapters.defaults(),
            ..GenerationParams::default()
        };
        let submission = Submission {
            model: &self.handle,
            params: &params,
            constraints: &OutputConstraints::default(),
            n: 1,
            context_max: self.handle.context_max,
            seed,
            deadline: terms.deadline,
            terms: terms.terms,
            credit_window: terms.ahead,
            reports_prompt: false,
            retry_after: Duration::ZERO,
        };
        let prompt = PreparedPrompt {
            ids: prompt.to_vec(),
            ..PreparedPrompt::default()
        };
        let started = submission.start(vec![prompt], &NoHost);
        let (generation, readers) = started.map_err(|why| trouble(&why))?;
        let (request, readers) = (generation.requests.first(), readers.into_iter().next());
        let (request, readers) = request.zip(readers).ok_or_else(Trouble::full)?;
        Ok(SubmittedRequest {
            reader: readers.tokens,
            id: request.id,
            engine: self.handle.engine.clone(),
        })
    }

    /// Requests the embedding of a prompt, which is available when the log has ended. The log stays empty.
    pub(crate) fn request_embedding(
        &self,
        prompt: &[u32],
        vector: &EmbeddingVector,
        terms: RequestTerms,
    ) -> Result<SubmittedRequest, Trouble> {
        let engine = &self.handle.engine;
        let pooling = self.pooling.filter(|_| engine.hidden_dim() > 0);
        let pooling = pooling.ok_or_else(|| {
            Trouble::program("this model gives no embeddings that are understood")
        })?;
        self.expect_room(prompt)?;
        let log = submit::open_log(&self.handle.token_pool, 1, &NoHost, Duration::ZERO);
        let (tokens, reader) = log.map_err(|why| trouble(&why))?;
        let request = EmbeddingRequest {
            prompt: prompt.to_vec(),
            embedding: Embedding {
                pooling,
                vector: Arc::clone(vector),
            },
            deadline: terms.deadline,
            lora: self.handle.adapters.defaults(),
            terms: terms.terms,
        };
        let request = request.into_request(&self.handle, tokens);
        let submitted = engine.submit(request.map_err(|why| trouble(&why))?);
        let rejected = |why| trouble(&submit::rejected(&why, Duration::ZERO));
        Ok(SubmittedRequest {
            reader,
            id: submitted.map_err(rejected)?,
            engine: engine.clone(),
        })
    }

    fn expect_room(&self, prompt: &[u32]) -> Result<(), Trouble> {
        if prompt.len() < self.handle.context_max {
            Ok(())
        } else {
            Err(Trouble::ended(End::Length))
        }
    }

    /// The text of these ids, with the texts of control tokens if `control_texts` is set. `None`: more than `bytes_max`
    /// bytes.
    pub(crate) fn text(
        &self,
        ids: &[u32],
        control_texts: bool,
        bytes_max: usize,
    ) -> Option<String> {
        let options = DetokenizeOptions {
            at_text_start: false,
            control_texts,
            bytes_max,
        };
        detokenize(&self.handle.tokenizer, ids, options)
    }
}

/// Why a request was not submitted.
fn trouble(error: &ApiError) -> Trouble {
    match error.blame {
        Blame::Capacity if error.code == "shutting_down" => {
            Trouble::ended(End::Failed(FailCode::Shutdown))
        }
        Blame::Capacity => Trouble::full(),
        Blame::Caller | Blame::Ours => Trouble::program(error.message.as_str()),
    }
}
