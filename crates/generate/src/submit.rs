//! From prompt ids to a started generation: token logs opened, requests submitted to the engine, or written as records
//! for engines of other processes.

mod answer_rules;
mod logs;
mod resume;

pub use self::logs::open_log;
pub use self::resume::{ResumedChoice, ResumedGeneration};

use self::answer_rules::AnswerLimits;
use self::logs::OpenedLogs;
use crate::constraint::compiler::OutputConstraints;
use crate::constraint::prompt_logprobs::UNSCORED;
use crate::error::ApiError;
use crate::model_handle::ModelHandle;
use crate::output::choice_reader::LogReaders;
use crate::prompt::PreparedPrompt;
use crate::remote_request::{RecordTerms, RemoteRequest, merged};
use crate::request::GenerationParams;
use crate::request_record::PromptRecord;
use crate::sampling::breaker_tokens;
use crate::stream_source::{StartedGeneration, Submitted};
use engine::remote::RemoteRecord;
use engine::{
    Choice, MediaInput, Progress, Rejected, Request, RequestUpdate, SamplingParams,
    SequencePermits, Terms, Token, TopLogprob,
};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Additions of the owner of a stream to requests.
pub trait SubmissionHost {
    /// Counts and timestamps of a request that answers this prompt; called once per request.
    fn progress(&self, _prompt: usize) -> Progress {
        Progress::default()
    }

    /// The slots of a request's sequences; `None`: as many as the engine has.
    fn permits(&self, _progress: &Arc<Progress>) -> Option<Box<dyn SequencePermits>> {
        None
    }

    /// Frees segments of token logs; false when there are none to free.
    fn free_segments(&self) -> bool {
        false
    }

    /// Wakes the recorder of the stream; `None`: the stream is not recorded. With a recorder the token logs are
    /// gated ([`stream::open_gated`]).
    fn recorder(&self) -> Option<Waker> {
        None
    }

    /// Takes the number of requests of a resumed stream, before the first is submitted: one per choice that has not
    /// ended. A stream that is started has one per prompt.
    fn set_requests(&self, _count: usize) {}
}

/// The host of submissions that belong to no stream: no permits, and no segments to free.
pub struct NoHost;

impl SubmissionHost for NoHost {}

/// Values that all prompts of one request share.
pub struct Submission<'a> {
    /// The model that answers.
    pub model: &'a ModelHandle,
    /// How answers are generated.
    pub params: &'a GenerationParams,
    /// Compiled output constraints.
    pub constraints: &'a OutputConstraints,
    /// Answers per prompt.
    pub n: usize,
    /// Tokens that prompt and answer may have together; where the model has a shorter context, that one counts. A resumed
    /// stream has the context length of its start.
    pub context_max: usize,
    /// Seed of the sampler.
    pub seed: u64,
    /// When the request has to be done.
    pub deadline: Option<Instant>,
    /// Priority, fair share and clocks.
    pub terms: Terms,
    /// Tokens a choice may be ahead of the reader; 0 = no limit.
    pub credit_window: u64,
    /// Whether the end of the answer reports the prompt's ids.
    pub reports_prompt: bool,
    /// When to try again after a rejection for want of capacity.
    pub retry_after: Duration,
}

impl Submission<'_> {
    /// Opens and submits everything, or nothing: what was submitted before a rejection is cancelled. Returns the
    /// generation with the first reader of each choice.
    ///
    /// # Errors
    /// The token pools or the engine have no room, or the engine rejects a request.
    pub fn start(
        &self,
        prompts: Vec<PreparedPrompt>,
        host: &dyn SubmissionHost,
    ) -> Result<(StartedGeneration, Vec<LogReaders>), ApiError> {
        if let Some(continued) = &self.params.continued {
            return self.continue_answer(continued, &prompts, host);
        }
        let mut requests = SubmittedRequests::new(self.model, prompts.len());
        let mut opened = OpenedLogs::with_capacity(prompts.len() * self.n);
        let prompt_tokens = prompts.iter().map(|prompt| prompt.ids.len() as u64).sum();
        let image_tokens = prompts
            .iter()
            .map(|prompt| prompt.image_rows() as u64)
            .sum();
        let described = prompts.iter().find_map(|prompt| prompt.described.clone());
        for (i, prompt) in prompts.into_iter().enumerate() {
            requests.push(self.submit_prompt(i, prompt, host, &mut opened)?);
        }
        let generation = StartedGeneration {
            engine: self.model.engine.clone(),
            tokenizer: Arc::clone(&self.model.tokenizer),
            requests: requests.keep(),
            choices: opened.logs,
            prompt_tokens,
            image_tokens,
            described,
            resumed: None,
        };
        Ok((generation, opened.readers))
    }

    fn submit_prompt(
        &self,
        number: usize,
        prompt: PreparedPrompt,
        host: &dyn SubmissionHost,
        opened: &mut OpenedLogs,
    ) -> Result<Submitted, ApiError> {
        let progress = host.progress(number);
        let progress = progress.with_ending_room(self.ending_alternatives());
        let limits = self.answer_limits(&prompt)?;
        let mut choices = Vec::with_capacity(self.n);
        for _ in 0..self.n {
            choices.push(self.open_choice(&prompt, limits, host, opened)?);
        }
        let remote = self.remote_record(&prompt, (0, self.n), &[])?;
        let media = self.media(&prompt)?;
        let mut ids = prompt.ids;
        ids.truncate(limits.prompt_len);
        let request = Request {
            remote,
            media,
            max_tokens: limits.max_tokens,
            sampling: self.sampling_params(limits),
            choices,
            ..self.empty_request(ids, Arc::new(progress), host)
        };
        let choices = number * self.n..(number + 1) * self.n;
        self.submit_request(number, choices, request)
    }

    /// The inputs of the model's encoder; none for an engine of another process, which gets the files.
    ///
    /// # Errors
    /// The prompt's tokens have no log-probabilities where they are rows of images, or the images are not attached.
    fn media(&self, prompt: &PreparedPrompt) -> Result<Vec<MediaInput>, ApiError> {
        let is_attached = if self.model.engine.is_remote() {
            prompt.image_runs.is_empty() || prompt.files.is_some()
        } else {
            prompt.image_runs.len() == prompt.media.len()
        };
        if !is_attached {
            let message = "images of a prompt are not attached";
            return Err(ApiError::ours("internal_error", message));
        }
        if self.params.prompt_logprobs && !prompt.image_runs.is_empty() {
            let message = "prompt_logprobs: rows of images have no log-probabilities";
            return Err(ApiError::field("prompt_logprobs", "invalid_value", message));
        }
        Ok(prompt.media.clone())
    }

    /// Alternatives that are kept of the token that ends a choice.
    fn ending_alternatives(&self) -> usize {
        let sampling = &self.params.sampling;
        if sampling.logprobs {
            sampling.top_logprobs as usize
        } else {
            0
        }
    }

    /// A request with this prompt, without choices, limits and adapters.
    fn empty_request(
        &self,
        prompt: Vec<u32>,
        progress: Arc<Progress>,
        host: &dyn SubmissionHost,
    ) -> Request {
        Request {
            sampling: self.params.sampling.clone(),
            eos: self.eos_ids(),
            deadline: self.deadline,
            credit_window: self.credit_window,
            terms: self.terms,
            permits: host.permits(&progress),
            progress,
            ..Request::new(prompt, 0)
        }
    }

    fn submit_request(
        &self,
        prompt: usize,
        choices: Range<usize>,
        request: Request,
    ) -> Result<Submitted, ApiError> {
        let breakers = &self.params.dry_sequence_breakers;
        let request = Request {
            adapters: self.model.adapters.resolve(&self.params.lora)?,
            sampling: SamplingParams {
                dry_breakers: breaker_tokens(breakers, &self.model.tokenizer)?,
                ..request.sampling
            },
            ..request
        };
        let progress = Arc::clone(&request.progress);
        match self.model.engine.submit(request) {
            Ok(id) => Ok(Submitted {
                id,
                progress,
                prompt,
                choices,
            }),
            Err(why) => Err(rejected(&why, self.retry_after)),
        }
    }

    /// Opens the logs of one choice. Returns the engine's side; the reader's side goes to `opened`.
    fn open_choice(
        &self,
        prompt: &PreparedPrompt,
        limits: AnswerLimits,
        host: &dyn SubmissionHost,
        opened: &mut OpenedLogs,
    ) -> Result<Choice, ApiError> {
        let room = limits.max_tokens + limits.echoed_first;
        let mut writers = self.open_logs(prompt, room, host, opened)?;
        for &first in &prompt.ids[..limits.echoed_first] {
            let (first, top) = self.unscored(first);
            writers.append(first, &top)?;
        }
        let rules = self.answer_rules(prompt);
        Ok(Choice {
            tokens: writers.tokens,
            top: writers.top,
            terminator: rules.terminator,
            constraint: rules.constraint,
        })
    }

    /// A prompt's first token as an item of the log, with placeholders as alternatives: the token has no context.
    fn unscored(&self, first: u32) -> (Token, Vec<TopLogprob>) {
        let (id, logprob) = (first, UNSCORED);
        let top_n = self.params.sampling.top_logprobs as usize;
        (
            Token { id, logprob },
            vec![TopLogprob { id, logprob }; top_n],
        )
    }
}

/// Requests that the engine accepted; the drop cancels them, unless they are kept.
struct SubmittedRequests<'a> {
    model: &'a ModelHandle,
    requests: Vec<Submitted>,
}

impl<'a> SubmittedRequests<'a> {
    fn new(model: &'a ModelHandle, count: usize) -> Self {
        let requests = Vec::with_capacity(count);
        Self { model, requests }
    }

    fn push(&mut self, request: Submitted) {
        self.requests.push(request);
    }

    /// All requests, which go on.
    fn keep(mut self) -> Vec<Submitted> {
        std::mem::take(&mut self.requests)
    }
}

impl Drop for SubmittedRequests<'_> {
    fn drop(&mut self) {
        for request in &self.requests {
            self.model.engine.cancel(request.id);
        }
    }
}

/// The error of a request that the engine rejected.
pub fn rejected(why: &Rejected, retry_after: Duration) -> ApiError {
    match why {
        Rejected::Full(_) => {
            ApiError::capacity("queue_full", "too many requests are waiting", retry_after)
        }
        Rejected::Closed(_) => {
            ApiError::capacity("shutting_down", "the server is shutting down", retry_after)
        }
        Rejected::Invalid(_, why) => ApiError::bad_request("invalid_value", why.clone()),
    }
}

impl Submission<'_> {
    /// The record of a request with `n` choices of a prompt from `first_choice` on, with these updates in effect.
    pub fn remote_request(
        &self,
        prompt: &PreparedPrompt,
        (first_choice, n): (u32, usize),
        updates: &[RequestUpdate],
    ) -> RemoteRequest {
        let files = prompt.files.as_ref();
        let mut record = prompt.to_record();
        for run in &mut record.images {
            run.image = files.and_then(|files| files.place(run.image)).unwrap_or(0);
        }
        RemoteRequest {
            prompt: PromptRecord {
                echo_text: None,
                described: None,
                ..record
            },
            images: files.map_or_else(Vec::new, |files| files.records.clone()),
            params: GenerationParams {
                closed_objects: Some(self.constraints.closed_objects),
                ..self.params.clone()
            },
            n,
            first_choice,
            context_max: self.context_max.min(self.model.context_max),
            seed: self.seed,
            credit_window: self.credit_window,
            terms: RecordTerms::new(&self.terms),
            in_effect: merged(updates),
            embedding: None,
        }
    }

    /// The encoded record, where the engine is in another process.
    fn remote_record(
        &self,
        prompt: &PreparedPrompt,
        choices: (u32, usize),
        updates: &[RequestUpdate],
    ) -> Result<Option<RemoteRecord>, ApiError> {
        if !self.model.engine.is_remote() {
            return Ok(None);
        }
        let request = self.remote_request(prompt, choices, updates);
        let files = prompt.files.as_ref();
        Ok(Some(RemoteRecord {
            bytes: request.encode()?.into(),
            files: files.map(|files| Arc::clone(&files.files)),
        }))
    }
}
