//! A stream as encoders and the output pipeline read it: metadata and, from the start on, token logs.

use crate::ended_time::EndedTime;
use crate::error::ApiError;
use crate::output::parser_config::ParserConfig;
use crate::stream_meta::StreamMeta;
use engine::{Handle, Progress, RequestId, Token, TopLogprob};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use stream::{Gate, Tap};
use text::Tokenizer;

/// A request that the engine accepted.
pub struct Submitted {
    /// Id of the request within the engine.
    pub id: RequestId,
    /// Counts and timestamps that the engine keeps current.
    pub progress: Arc<Progress>,
    /// Number of the prompt that the request answers.
    pub prompt: usize,
    /// Numbers of the choices that the request computes, among the choices of the generation.
    pub choices: Range<usize>,
}

/// Counts of a resumed generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumedCounts {
    /// Prompt tokens that were taken from the prefix cache before the restart, over all prompts.
    pub cached_tokens: u64,
    /// Tokens of each prompt.
    pub prompt_tokens: Vec<u64>,
    /// When the first request began.
    pub started: Option<Instant>,
    /// When the last choice ended, of a generation without requests.
    pub ended: Option<Instant>,
}

/// A generation with open logs and submitted requests.
pub struct StartedGeneration {
    /// The engine that runs the requests.
    pub engine: Handle,
    /// Ids to text.
    pub tokenizer: Arc<Tokenizer>,
    /// One request per prompt; of a resumed generation, one per choice that had not ended, in order of choices.
    pub requests: Vec<Submitted>,
    /// One log per choice.
    pub choices: Vec<ChoiceLog>,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Counts from before the restart; `None`: the generation was not resumed.
    pub resumed: Option<ResumedCounts>,
}

impl StartedGeneration {
    /// Prompt tokens that were taken from the prefix cache, over all prompts.
    pub fn cached_tokens(&self) -> u64 {
        match &self.resumed {
            Some(counts) => counts.cached_tokens,
            None => self
                .requests
                .iter()
                .map(|r| r.progress.cached_tokens())
                .sum(),
        }
    }

    /// Prompt tokens whose keys and values exist, over all prompts. Of a resumed generation each prompt counts once,
    /// without the tokens so far, which the engine's prompts contain; all of a prompt whose choices have ended.
    pub fn prompt_done(&self) -> u64 {
        let Some(counts) = &self.resumed else {
            return self.requests.iter().map(|r| r.progress.prompt_done()).sum();
        };
        let done = counts
            .prompt_tokens
            .iter()
            .enumerate()
            .map(|(prompt, &all)| {
                let requests = self.requests.iter().filter(|r| r.prompt == prompt);
                let done = requests.map(|r| r.progress.prompt_done()).max();
                done.map_or(all, |done| done.min(all))
            });
        done.sum()
    }
}

/// The logs of one choice and the options of the output pipeline.
pub struct ChoiceLog {
    /// Sampled tokens.
    pub tokens: Tap<Token>,
    /// The recorder's handle to the log of tokens, where the stream is recorded.
    pub gate: Option<Gate<Token>>,
    /// Alternatives of each token, where requested.
    pub top: Option<Tap<TopLogprob>>,
    /// Whether the first token begins a text.
    pub at_text_start: bool,
    /// How the answer is parsed.
    pub reading: ParserConfig,
    /// Prompt tokens at the beginning of the log.
    pub echoed: u64,
    /// Echo text, emitted before the first token.
    pub echo_text: Option<Arc<str>>,
    /// Prompt ids, where the end of the answer reports them.
    pub prompt: Option<Arc<[u32]>>,
}

impl ChoiceLog {
    /// Tokens of the answer so far.
    pub fn answered(&self) -> u64 {
        self.tokens.len().saturating_sub(self.echoed)
    }

    /// Steps that a reader may have been sent by now.
    pub fn steps(&self) -> u64 {
        // The end first: a log that has ended grows no more.
        let closing = if self.tokens.end().is_some() { 2 } else { 0 };
        u64::from(self.echo_text.is_some()) + self.tokens.len() + closing
    }
}

/// Metadata of a stream and, once there is one, the outcome of the start.
pub struct StreamSource {
    meta: StreamMeta,
    outcome: OnceLock<Result<StartedGeneration, ApiError>>,
    ended_time: Arc<EndedTime>,
}

impl StreamSource {
    /// A stream that is not started yet.
    pub fn new(meta: StreamMeta) -> Self {
        Self {
            meta,
            outcome: OnceLock::new(),
            ended_time: Arc::default(),
        }
    }

    /// Metadata of the stream.
    pub fn meta(&self) -> &StreamMeta {
        &self.meta
    }

    /// When the stream ended.
    pub fn ended_time(&self) -> &Arc<EndedTime> {
        &self.ended_time
    }

    /// Sets the outcome of the start; false if one was set before.
    pub fn settle(&self, outcome: Result<StartedGeneration, ApiError>) -> bool {
        self.outcome.set(outcome).is_ok()
    }

    /// The outcome of the start; `None` while the request waits for a permit.
    pub fn outcome(&self) -> Option<&Result<StartedGeneration, ApiError>> {
        self.outcome.get()
    }

    /// The generation, once started.
    pub fn started(&self) -> Option<&StartedGeneration> {
        self.outcome.get()?.as_ref().ok()
    }

    /// Why the generation will never start.
    pub fn rejected(&self) -> Option<&ApiError> {
        self.outcome.get()?.as_ref().err()
    }
}
