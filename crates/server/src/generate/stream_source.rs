//! A stream as encoders and the output pipeline read it: metadata and, from the start on, token logs.

use crate::generate::error::ApiError;
use crate::generate::reading::Reading;
use crate::generate::stream_meta::StreamMeta;
use engine::{Handle, Progress, RequestId, Token, TopLogprob};
use std::sync::{Arc, OnceLock};
use stream::Tap;
use text::Tokenizer;

/// A request that the engine accepted.
pub(crate) struct Submitted {
    pub(crate) id: RequestId,
    pub(crate) progress: Arc<Progress>,
}

/// A generation whose logs are open and whose requests the engine has.
pub(crate) struct StartedGeneration {
    pub(crate) engine: Handle,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) requests: Vec<Submitted>,
    pub(crate) choices: Vec<ChoiceLog>,
    pub(crate) prompt_tokens: u64,
}

/// The logs of one choice and the options of its output pipeline.
pub(crate) struct ChoiceLog {
    pub(crate) tokens: Tap<Token>,
    pub(crate) top: Option<Tap<TopLogprob>>,
    pub(crate) at_text_start: bool,
    pub(crate) reading: Reading,
    /// Prompt tokens at the beginning of the log.
    pub(crate) echoed: u64,
    /// Echo text, emitted before the first token.
    pub(crate) preface: Option<Arc<str>>,
    /// Prompt ids, where the end of the answer reports them.
    pub(crate) prompt: Option<Arc<[u32]>>,
}

impl ChoiceLog {
    /// Tokens of the answer so far.
    pub(crate) fn answered(&self) -> u64 {
        self.tokens.len().saturating_sub(self.echoed)
    }

    /// Steps that a reader may have been sent by now.
    pub(crate) fn steps(&self) -> u64 {
        // The end first: a log that has ended grows no more.
        let closing = if self.tokens.end().is_some() { 2 } else { 0 };
        u64::from(self.preface.is_some()) + self.tokens.len() + closing
    }
}

/// Metadata of a stream and, once there is one, the outcome of its start.
pub(crate) struct StreamSource {
    meta: StreamMeta,
    outcome: OnceLock<Result<StartedGeneration, ApiError>>,
}

impl StreamSource {
    /// A stream that is not started yet.
    pub(crate) fn new(meta: StreamMeta) -> Self {
        Self {
            meta,
            outcome: OnceLock::new(),
        }
    }

    /// Metadata of the stream.
    pub(crate) fn meta(&self) -> &StreamMeta {
        &self.meta
    }

    /// Sets the outcome of the start; false if one was set before.
    pub(crate) fn settle(&self, outcome: Result<StartedGeneration, ApiError>) -> bool {
        self.outcome.set(outcome).is_ok()
    }

    /// The outcome of the start; `None` while the request waits for its permit.
    pub(crate) fn outcome(&self) -> Option<&Result<StartedGeneration, ApiError>> {
        self.outcome.get()
    }

    /// The generation, once started.
    pub(crate) fn started(&self) -> Option<&StartedGeneration> {
        self.outcome.get()?.as_ref().ok()
    }

    /// Why the generation will never start.
    pub(crate) fn rejected(&self) -> Option<&ApiError> {
        self.outcome.get()?.as_ref().err()
    }
}
