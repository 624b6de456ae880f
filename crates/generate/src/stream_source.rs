//! A stream as encoders, the output pipeline and subscribers read it: metadata fixed when it is opened, token logs from
//! its start on, its state changes, and the wall time at which it ended.

use crate::error::ApiError;
use crate::images::DescriptionUsage;
use crate::output::parser_config::ParserConfig;
use crate::request::StreamOptions;
use crate::sampling::ReportedSampling;
use engine::{Handle, Progress, RequestId, Token, TopLogprob};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use stream::{Gate, StreamId, Tap};
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
    /// Rows of images among them.
    pub image_tokens: u64,
    /// Work of the model that described images of the prompts; `None`: there were none to describe.
    pub described: Option<Box<DescriptionUsage>>,
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

    /// Time in which the model's encoder computed rows of images.
    pub fn encoding(&self) -> Duration {
        let times = self.requests.iter().map(|r| r.progress.encode_ns());
        Duration::from_nanos(times.sum())
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

    /// Work of the model that described images of the prompts, once the generation has started.
    pub fn described(&self) -> Option<&DescriptionUsage> {
        self.started()?.described.as_deref()
    }

    /// Why the generation will never start.
    pub fn rejected(&self) -> Option<&ApiError> {
        self.outcome.get()?.as_ref().err()
    }
}

/// Metadata of one stream.
pub struct StreamMeta {
    /// Id of the stream.
    pub id: StreamId,
    /// Id of the response in the wire protocol.
    pub response_id: String,
    /// Seconds since the Unix epoch at which the stream was opened.
    pub created_unix_s: i64,
    /// Arrival of the request.
    pub arrived: Instant,
    /// Model name from the request.
    pub model: String,
    /// How events are delivered.
    pub stream_options: StreamOptions,
    /// Number of prompts.
    pub prompts: usize,
    /// Number of choices over all prompts.
    pub choices: usize,
    /// Sampling parameters, with the seed and the limit of tokens.
    pub sampling: ReportedSampling,
    /// Stop strings, in the order that a stop refers to.
    pub stops: Vec<String>,
    /// Whether log-probabilities are emitted.
    pub logprobs: bool,
    /// Alternatives per token.
    pub top_n: usize,
}

impl StreamMeta {
    /// Metadata of a request that waits for a model: no stream is open yet.
    pub fn unopened(model: &str, arrived: Instant) -> Self {
        Self {
            id: StreamId::from_random([0; 16]),
            response_id: String::new(),
            created_unix_s: 0,
            arrived,
            model: model.to_owned(),
            stream_options: StreamOptions::default(),
            prompts: 1,
            choices: 1,
            sampling: ReportedSampling::default(),
            stops: Vec::new(),
            logprobs: false,
            top_n: 0,
        }
    }
}

/// A state change of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The stream was registered.
    Opened,
    /// The stream of an earlier process was registered again.
    Recovered,
    /// The stream of another gateway, which is gone, was registered here.
    Claimed,
    /// A request of the stream runs on another engine than before. Never the current state of a stream.
    Moved,
    /// Prefill of the first prompt began.
    Started,
    /// The credit window is used up.
    Backpressure,
    /// The stream has waited for credit for long.
    SlowConsumer,
    /// The stream is parked for another reason.
    Parked {
        /// `paused`, `detached`, `place` or `pages`.
        reason: &'static str,
    },
    /// The stream continues.
    Resumed,
    /// Every choice has ended, or the stream was never started.
    Ended {
        /// The end's name in the API; `refused` if the stream was never started.
        how: &'static str,
        /// The clock that fired, the code of the failure, or the error code of the rejection.
        detail: Option<&'static str>,
    },
}

/// When a stream ended: one time for all readers. Where the stream is recorded, the recorded one, so that an ended
/// stream reads alike after a restart; else the time at which this process first asked.
#[derive(Debug, Default)]
pub struct EndedTime {
    /// Microseconds since the Unix epoch; 0 = not known yet.
    unix_us: AtomicU64,
}

impl EndedTime {
    /// Records the end of a choice, in microseconds since the Unix epoch. The last of all choices counts.
    pub fn record(&self, unix_us: u64) {
        self.unix_us.fetch_max(unix_us, Ordering::AcqRel);
    }

    /// The recorded time, or else `now`, which becomes the recorded one. In microseconds since the Unix epoch.
    pub fn recorded_or(&self, now_unix_us: u64) -> u64 {
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.unix_us.compare_exchange(0, now_unix_us, order, failed);
        before.map_or_else(|recorded| recorded, |_| now_unix_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_question_decides_where_nothing_is_recorded() {
        let ended = EndedTime::default();
        assert_eq!((ended.recorded_or(5), ended.recorded_or(9)), (5, 5));
    }

    #[test]
    fn last_recorded_choice_counts() {
        let ended = EndedTime::default();
        ended.record(7);
        ended.record(3);
        assert_eq!(ended.recorded_or(9), 7);
    }
}
