//! A program's model: an engine with tokenizer and chat template.

use crate::run::Trouble;
use engine::{
    Choice, Embedding, Handle, Pooling, Progress, Rejected, Request, RequestId, SamplingParams,
    Terms, Token,
};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use stream::{End, FailCode, Reader, SegmentPool};
use text::{ChatTemplate, Decoder, Tokenizer};

/// A model for programs.
#[derive(Clone)]
pub struct Model {
    /// The engine.
    pub engine: Handle,
    /// Segment pool of token logs.
    pub tokens: SegmentPool<Token>,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Chat template; `None`: `format_chat` fails.
    pub template: Option<Arc<ChatTemplate>>,
    /// End-of-sequence ids.
    pub eos: Arc<[u32]>,
    /// Tokens per session.
    pub context_max: usize,
    /// Pooling of hidden states; `None`: `forward` fails.
    pub pooling: Option<Pooling>,
}

/// Terms of the requests to the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) terms: Terms,
    pub(crate) deadline: Option<Instant>,
    /// Credit window: tokens that the engine may be ahead of the program.
    pub(crate) ahead: u64,
    /// Tokens per request.
    pub(crate) tokens_max: usize,
}

/// Tokens that continue a transcript, received so far.
pub(crate) struct Asked {
    pub(crate) reader: Reader<Token>,
    pub(crate) id: RequestId,
    pub(crate) engine: Handle,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.engine.cancel(self.id);
    }
}

impl Model {
    /// Requests a continuation of `prompt`. End-of-sequence tokens are ordinary tokens: the program interprets them.
    pub(crate) fn ask(
        &self,
        prompt: &[u32],
        sampling: SamplingParams,
        asking: Asking,
    ) -> Result<Asked, Trouble> {
        let room = self.context_max.saturating_sub(prompt.len());
        let max_tokens = room.min(asking.tokens_max).max(1);
        self.submit(prompt, sampling, max_tokens, None, asking)
    }

    /// Requests the embedding of a prompt, which is available when the log has ended. The log stays empty.
    pub(crate) fn embed(
        &self,
        prompt: &[u32],
        vector: &Arc<OnceLock<Box<[f32]>>>,
        asking: Asking,
    ) -> Result<Asked, Trouble> {
        let pooling = self.pooling.filter(|_| self.engine.hidden_dim() > 0);
        let pooling = pooling.ok_or_else(|| {
            Trouble::program("this model gives no embeddings that are understood")
        })?;
        let embedding = Embedding {
            pooling,
            vector: Arc::clone(vector),
        };
        self.submit(
            prompt,
            SamplingParams::default(),
            1,
            Some(embedding),
            asking,
        )
    }

    fn submit(
        &self,
        prompt: &[u32],
        sampling: SamplingParams,
        max_tokens: usize,
        embedding: Option<Embedding>,
        asking: Asking,
    ) -> Result<Asked, Trouble> {
        if prompt.len() >= self.context_max {
            return Err(Trouble::ended(End::Length));
        }
        let log = stream::open(&self.tokens, max_tokens);
        let (tokens, reader) = log.map_err(|_| Trouble::full())?;
        let request = Request {
            prompt: prompt.to_vec(),
            sampling,
            max_tokens,
            eos: Arc::clone(&self.eos),
            choices: vec![Choice {
                tokens,
                top: None,
                terminator: None,
                constraint: None,
            }],
            embedding,
            deadline: asking.deadline,
            credit_window: asking.ahead,
            terms: asking.terms,
            progress: Arc::new(Progress::default()),
            permits: None,
            held: None,
        };
        let id = self.engine.submit(request).map_err(|why| match why {
            Rejected::Full(_) => Trouble::full(),
            Rejected::Closed(_) => Trouble::ended(End::Failed(FailCode::Shutdown)),
            Rejected::Invalid(_, why) => Trouble::program(why),
        })?;
        Ok(Asked {
            reader,
            id,
            engine: self.engine.clone(),
        })
    }

    /// The text of these ids; with `all`, control tokens included. `None`: more than `most` bytes.
    pub(crate) fn text(&self, ids: &[u32], all: bool, most: usize) -> Option<String> {
        let mut decoder = Decoder::new(Arc::clone(&self.tokenizer), false);
        if all {
            let mut shown: Vec<u32> = ids
                .iter()
                .copied()
                .filter(|id| self.tokenizer.is_control(*id))
                .collect();
            shown.sort_unstable();
            shown.dedup();
            decoder = decoder.showing(shown.into());
        }
        let mut text = String::new();
        for id in ids {
            decoder.push(*id, &mut text);
            if text.len() > most {
                return None;
            }
        }
        decoder.finish(&mut text);
        Some(text)
    }
}
