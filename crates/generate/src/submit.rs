//! From prompt ids to a started generation: token logs opened, requests submitted to the engine.

use crate::constraint::compiler::OutputConstraints;
use crate::constraint::harmony::{HarmonyConstraint, HarmonyHeaders};
use crate::constraint::prompt_logprobs::{self, ForcedTokens, SkipPrompt};
use crate::constraint::reasoning_budget::ReasoningBudget;
use crate::constraint::strict_tools::{ChainedConstraint, StrictCalls, WithoutDelimiters};
use crate::constraint::text_delimiters::{FormatAfterReasoning, TextReasoningBudget};
use crate::error::ApiError;
use crate::model_handle::ModelHandle;
use crate::output::choice_reader::LogReaders;
use crate::prompt::PreparedPrompt;
use crate::request::GenerationParams;
use crate::stop::StopStrings;
use crate::stream_source::{ChoiceLog, StartedGeneration, Submitted};
use engine::{
    Choice, Constraint, Progress, Rejected, Request, SamplingParams, SequencePermits,
    StopCondition, Terms, Token, TopLogprob,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Reader, SegmentPool, Writer};

/// What the owner of a stream adds to requests.
pub trait SubmissionHost {
    /// Counts and timestamps of the request that answers this prompt.
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
}

/// The host of submissions that belong to no stream: no permits, and no segments to free.
pub struct NoHost;

impl SubmissionHost for NoHost {}

/// What all prompts of one request share.
pub struct Submission<'a> {
    /// The model that answers.
    pub model: &'a ModelHandle,
    /// How answers are generated.
    pub params: &'a GenerationParams,
    /// Compiled output constraints.
    pub constraints: &'a OutputConstraints,
    /// Answers per prompt.
    pub n: usize,
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

/// Logs of all choices so far, and their first readers.
struct OpenedLogs {
    logs: Vec<ChoiceLog>,
    readers: Vec<LogReaders>,
}

/// Writers of one choice's logs, and their first readers.
struct LogEnds {
    tokens: Writer<Token>,
    top: Option<Writer<TopLogprob>>,
    readers: LogReaders,
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
        let choices = prompts.len() * self.n;
        let mut requests = Vec::with_capacity(prompts.len());
        let mut opened = OpenedLogs {
            logs: Vec::with_capacity(choices),
            readers: Vec::with_capacity(choices),
        };
        let prompt_tokens = prompts.iter().map(|prompt| prompt.ids.len() as u64).sum();
        for (i, prompt) in prompts.into_iter().enumerate() {
            match self.submit_prompt(prompt, host.progress(i), host, &mut opened) {
                Ok(request) => requests.push(request),
                Err(error) => {
                    let cancel = |request: &Submitted| self.model.engine.cancel(request.id);
                    requests.iter().for_each(cancel);
                    return Err(error);
                }
            }
        }
        let generation = StartedGeneration {
            engine: self.model.engine.clone(),
            tokenizer: Arc::clone(&self.model.tokenizer),
            requests,
            choices: opened.logs,
            prompt_tokens,
        };
        Ok((generation, opened.readers))
    }

    fn submit_prompt(
        &self,
        prompt: PreparedPrompt,
        progress: Progress,
        host: &dyn SubmissionHost,
        opened: &mut OpenedLogs,
    ) -> Result<Submitted, ApiError> {
        let room = self.model.context_max - prompt.ids.len();
        let mut max_tokens = self.params.max_tokens.map_or(room, |max| max.min(room));
        let min_tokens = self.params.sampling.min_tokens as usize;
        if min_tokens > max_tokens {
            let words = format!(
                "min_tokens: is {min_tokens}; there is room for {max_tokens} more tokens in the context"
            );
            return Err(ApiError::field("min_tokens", "invalid_value", words));
        }
        let mut given = prompt.ids.len();
        if self.params.prompt_logprobs {
            let ends = (!self.params.sampling.ignore_eos).then(|| self.eos_ids());
            max_tokens = prompt_logprobs::answer_tokens(&prompt.ids, max_tokens, ends.as_deref())?;
            given = 1;
        }
        let mut choices = Vec::with_capacity(self.n);
        for _ in 0..self.n {
            choices.push(self.open_choice(&prompt, max_tokens, host, opened)?);
        }
        let progress = Arc::new(progress);
        let (mut ids, mut sampling) = (prompt.ids, self.sampling_params());
        sampling.min_tokens += u32::try_from(ids.len() - given).unwrap_or(u32::MAX);
        ids.truncate(given);
        let request = Request {
            prompt: ids,
            sampling,
            max_tokens,
            eos: self.eos_ids(),
            choices,
            first_choice: 0,
            paused: false,
            embedding: None,
            deadline: self.deadline,
            credit_window: self.credit_window,
            terms: self.terms,
            progress: Arc::clone(&progress),
            permits: host.permits(&progress),
            held: None,
        };
        match self.model.engine.submit(request) {
            Ok(id) => Ok(Submitted { id, progress }),
            Err(why) => Err(rejected(&why, self.retry_after)),
        }
    }

    /// Opens the logs of one choice. Returns the engine's side; the reader's side goes to `opened`.
    fn open_choice(
        &self,
        prompt: &PreparedPrompt,
        max_tokens: usize,
        host: &dyn SubmissionHost,
        opened: &mut OpenedLogs,
    ) -> Result<Choice, ApiError> {
        let echoed = if self.params.prompt_logprobs {
            prompt.ids.len()
        } else {
            0
        };
        let LogEnds {
            tokens,
            top,
            readers,
        } = self.open_logs(max_tokens, &prompt.ids[..echoed.min(1)], host)?;
        opened.logs.push(ChoiceLog {
            tokens: readers.tokens.tap(),
            top: readers.top.as_ref().map(Reader::tap),
            at_text_start: prompt.at_text_start || echoed > 0,
            reading: prompt.reading.clone(),
            echoed: echoed as u64,
            echo_text: prompt.echo_text.clone(),
            prompt: self.reports_prompt.then(|| prompt.ids.as_slice().into()),
        });
        opened.readers.push(readers);
        let mut stop = self.stop_condition(prompt);
        let mut constraint = self.output_constraint(prompt);
        if echoed > 0 {
            let others = &prompt.ids[1..];
            let skip =
                |stop| Box::new(SkipPrompt::new(others.len(), stop)) as Box<dyn StopCondition>;
            stop = stop.map(skip);
            constraint = Some(Box::new(ForcedTokens::new(others, constraint)));
        }
        Ok(Choice {
            tokens,
            top,
            terminator: stop,
            constraint,
        })
    }

    /// The logs of one choice, which begin with `first` and have room for `max_tokens` tokens after that.
    fn open_logs(
        &self,
        max_tokens: usize,
        first: &[u32],
        host: &dyn SubmissionHost,
    ) -> Result<LogEnds, ApiError> {
        let top_n = self.params.sampling.top_logprobs as usize;
        let room = max_tokens + first.len();
        let (mut tokens, reader) = open_log(&self.model.token_pool, room, host, self.retry_after)?;
        let top = match top_n {
            0 => None,
            n => Some(open_log(
                &self.model.top_pool,
                room * n,
                host,
                self.retry_after,
            )?),
        };
        let (mut top, top_reader) = top.unzip();
        for &first in first {
            let top = top.as_mut().map(|top| (top, top_n));
            let begun = prompt_logprobs::begin(first, &mut tokens, top);
            begun.map_err(|_| ApiError::ours("internal_error", "a log has no room"))?;
        }
        let readers = LogReaders {
            tokens: reader,
            top: top_reader,
        };
        Ok(LogEnds {
            tokens,
            top,
            readers,
        })
    }

    /// Stop strings, and the end of the only tool call, where a request has these.
    fn stop_condition(&self, prompt: &PreparedPrompt) -> Option<Box<dyn StopCondition>> {
        let (params, reading) = (self.params, &prompt.reading);
        if params.stops.is_empty() && !params.tool_calling.single_call {
            return None;
        }
        let stops = StopStrings::new(
            &self.model.tokenizer,
            prompt.at_text_start,
            reading.shown(),
            &params.stops,
        );
        let calls = params.tool_calling.single_call.then(|| reading.parser());
        Some(Box::new(stops.after_one_call(calls)))
    }

    /// The constraint of one answer: response format, tool calls, reasoning budget, or several of them.
    fn output_constraint(&self, prompt: &PreparedPrompt) -> Option<Box<dyn Constraint>> {
        let (reading, constraints) = (&prompt.reading, self.constraints);
        let budget = self.params.reasoning_budget;
        let is_constrained =
            constraints.grammar.is_some() || constraints.strict.is_some() || budget.is_some();
        match (reading.channels(), reading.marks(), reading.spelled()) {
            (Some(channels), ..) if is_constrained => Some(self.in_channels(channels, budget)),
            (_, Some(marks), _) if is_constrained => {
                let thinking = ReasoningBudget::new(
                    marks.clone(),
                    budget,
                    &self.eos_ids(),
                    self.content_constraint(),
                );
                Some(Box::new(thinking))
            }
            (.., Some(spelled)) if is_constrained => {
                let content = self.content_constraint().zip(self.content_constraint());
                let content = content.zip(constraints.delimiters.as_ref());
                let form = content.map(|((direct, after), delimiters)| {
                    FormatAfterReasoning::new(direct, after, delimiters, &self.eos_ids())
                });
                let (tokenizer, at_start) = (&self.model.tokenizer, prompt.at_text_start);
                let spelled = spelled.clone();
                let thinking = TextReasoningBudget::new(spelled, budget, tokenizer, at_start, form);
                Some(Box::new(thinking))
            }
            _ => self.content_constraint(),
        }
    }

    /// The constraint of content and tool calls, at the beginning of an answer.
    fn content_constraint(&self) -> Option<Box<dyn Constraint>> {
        let vocab = self.model.tokenizer.vocab_size();
        let OutputConstraints {
            grammar,
            strict,
            masks,
            ..
        } = self.constraints;
        match (grammar, strict) {
            (Some(grammar), _) => Some(Box::new(masks.start(grammar.matcher(), vocab))),
            (None, Some(strict)) => Some(Box::new(StrictCalls::new(strict, masks, vocab))),
            (None, None) => None,
        }
    }

    /// The constraint of an answer in Harmony channels. Strict tool calls are constrained in every channel.
    fn in_channels(&self, channels: &HarmonyHeaders, budget: Option<u64>) -> Box<dyn Constraint> {
        let harmony = |budget, content| {
            HarmonyConstraint::new(channels.clone(), budget, &self.eos_ids(), content)
        };
        match (self.content_constraint(), &self.constraints.strict) {
            (Some(strict), Some(_)) if budget.is_some() => Box::new(ChainedConstraint {
                first: Box::new(harmony(budget, None)),
                second: strict,
            }),
            (Some(strict), Some(_)) => strict,
            (Some(content), None) => {
                let content = match &self.constraints.delimiters {
                    Some(delimiters) => Box::new(WithoutDelimiters::new(content, delimiters)),
                    None => content,
                };
                Box::new(harmony(budget, Some(content)))
            }
            (None, _) => Box::new(harmony(budget, None)),
        }
    }

    fn sampling_params(&self) -> SamplingParams {
        SamplingParams {
            seed: self.seed,
            ..self.params.sampling.clone()
        }
    }

    /// The model's end-of-sequence ids and the request's. With `ignore_eos`, those of the request alone.
    fn eos_ids(&self) -> Arc<[u32]> {
        let extra = &self.params.stop_token_ids;
        if extra.is_empty() {
            return Arc::clone(&self.model.eos);
        }
        let own: &[u32] = if self.params.ignore_eos {
            &[]
        } else {
            &self.model.eos
        };
        own.iter().chain(extra).copied().collect()
    }
}

/// Opens a log with room for `items` items, for which the host may free segments.
///
/// # Errors
/// The pool is used up.
pub fn open_log<T: Copy + Send + Sync + 'static>(
    pool: &SegmentPool<T>,
    items: usize,
    host: &dyn SubmissionHost,
    retry_after: Duration,
) -> Result<(Writer<T>, Reader<T>), ApiError> {
    loop {
        match stream::open(pool, items) {
            Ok(log) => return Ok(log),
            Err(_) if host.free_segments() => {}
            Err(_) => {
                let message = "no room for another stream of this length";
                return Err(ApiError::capacity("overloaded", message, retry_after));
            }
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
