//! Resumed generations: answers from before a restart, continued from their tokens.
//!
//! A choice without an end becomes one engine request whose prompt is the prompt and the tokens so far. These are
//! replayed into the stop condition and the output constraint, so both are in the state of the uninterrupted answer; where
//! the last of them ends the answer, the choice ends as in the engine, without a request. Random numbers, penalties and
//! `min_tokens` count the tokens so far as generated ([`SamplingParams::answered`]), and the number of the choice selects
//! the random numbers ([`Request::first_choice`]).
//!
//! The tokens so far are in the logs before the request is submitted, are shown, and count as accepted: credit for a
//! reader that has not come back is granted anew.

use super::answer_rules::{AnswerLimits, AnswerRules};
use super::logs::{LogWriters, OpenedLogs};
use super::{Submission, SubmissionHost, SubmittedRequests};
use crate::error::ApiError;
use crate::output::choice_reader::LogReaders;
use crate::prompt::PreparedPrompt;
use crate::request::ContinuedAnswer;
use crate::stream_source::{ResumedCounts, StartedGeneration, Submitted};
use engine::{Choice, GivenProgress, Request, RequestUpdate, SamplingParams, Token, TopLogprob};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use stream::{End, FailCode, Stop};

/// One choice before the restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResumedChoice {
    /// All items of the log, including the prompt's tokens at the beginning (`prompt_logprobs`) and injected tokens.
    pub tokens: Vec<Token>,
    /// Alternatives of each token, in order. (tokens.len(), top_logprobs)
    pub top: Vec<TopLogprob>,
    /// The end, where the choice had one.
    pub end: Option<End>,
}

impl ResumedChoice {
    /// A choice that goes on from these tokens, with unknown log-probabilities.
    pub(crate) fn of_ids(ids: &[u32], top_n: usize) -> Self {
        let logprob = f32::NAN;
        let blank = TopLogprob { id: 0, logprob };
        Self {
            tokens: ids.iter().map(|&id| Token { id, logprob }).collect(),
            top: vec![blank; ids.len() * top_n],
            end: None,
        }
    }
}

/// A generation before the restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResumedGeneration {
    /// The choices of all prompts, in order. (prompts, n)
    pub choices: Vec<ResumedChoice>,
    /// Prompt tokens that were taken from the prefix cache, over all prompts.
    pub cached_tokens: u64,
    /// When the first request began.
    pub started: Option<Instant>,
    /// When the last choice ended, if all have ended.
    pub ended: Option<Instant>,
    /// Whether the generation is paused.
    pub paused: bool,
    /// Control updates in effect, in order; their injected tokens are among the tokens so far. Updates that are not in
    /// effect yet are sent with [`engine::Handle::update`] afterwards.
    pub updates: Vec<RequestUpdate>,
}

/// A choice that goes on.
struct OpenChoice {
    /// Number of the prompt.
    prompt: usize,
    /// Number among the choices of the prompt.
    number: usize,
    /// Number among the choices of the generation.
    at: usize,
    choice: Choice,
    /// Ids of the tokens so far, without the prompt's.
    answered: Vec<u32>,
}

impl Submission<'_> {
    /// As [`Submission::start`], for a generation from before a restart. Where every choice has ended, no request is
    /// submitted.
    ///
    /// # Errors
    /// As [`Submission::start`]; or the choices do not belong to the prompts.
    pub fn resume(
        &self,
        prompts: &[PreparedPrompt],
        resumed: ResumedGeneration,
        host: &dyn SubmissionHost,
    ) -> Result<(StartedGeneration, Vec<LogReaders>), ApiError> {
        self.resume_from(0, prompts, resumed, host)
    }

    /// Submits the rest of an answer that another process has begun. The tokens so far have no log-probabilities.
    pub(super) fn continue_answer(
        &self,
        continued: &ContinuedAnswer,
        prompts: &[PreparedPrompt],
        host: &dyn SubmissionHost,
    ) -> Result<(StartedGeneration, Vec<LogReaders>), ApiError> {
        let ids = &continued.token_ids;
        let choice = ResumedChoice::of_ids(ids, self.params.sampling.top_logprobs as usize);
        let resumed = ResumedGeneration {
            choices: vec![choice],
            ..ResumedGeneration::default()
        };
        self.resume_from(continued.choice, prompts, resumed, host)
    }

    /// As [`Submission::resume`], for the choices of each prompt from `first_choice` on.
    ///
    /// # Errors
    /// As [`Submission::resume`].
    pub(crate) fn resume_from(
        &self,
        first_choice: u32,
        prompts: &[PreparedPrompt],
        mut resumed: ResumedGeneration,
        host: &dyn SubmissionHost,
    ) -> Result<(StartedGeneration, Vec<LogReaders>), ApiError> {
        let mut opened = OpenedLogs::with_capacity(resumed.choices.len());
        let mut limits = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            limits.push(self.answer_limits(prompt)?);
        }
        if resumed.choices.len() != prompts.len() * self.n {
            return Err(unlike_the_request());
        }
        let mut open = Vec::new();
        let choices = std::mem::take(&mut resumed.choices);
        for (i, choice) in choices.into_iter().enumerate() {
            let (at, number) = (i / self.n, first_choice as usize + i % self.n);
            let reopened =
                self.reopen_choice((&prompts[at], limits[at]), choice, host, &mut opened)?;
            open.extend(reopened.map(|(choice, answered)| OpenChoice {
                prompt: at,
                number,
                at: i,
                choice,
                answered,
            }));
        }
        let counts = ResumedCounts {
            cached_tokens: resumed.cached_tokens,
            prompt_tokens: prompts
                .iter()
                .map(|prompt| prompt.ids.len() as u64)
                .collect(),
            started: resumed.started,
            ended: resumed.ended,
        };
        host.set_requests(open.len());
        let requests = self.submit_open((prompts, &limits), open, &resumed, host)?;
        let generation = StartedGeneration {
            engine: self.model.engine.clone(),
            tokenizer: Arc::clone(&self.model.tokenizer),
            requests,
            choices: opened.logs,
            prompt_tokens: counts.prompt_tokens.iter().sum(),
            image_tokens: prompts
                .iter()
                .map(|prompt| prompt.image_rows() as u64)
                .sum(),
            described: prompts.iter().find_map(|prompt| prompt.described.clone()),
            resumed: Some(counts),
        };
        Ok((generation, opened.readers))
    }

    /// Submits a request for each open choice, or none.
    fn submit_open(
        &self,
        (prompts, limits): (&[PreparedPrompt], &[AnswerLimits]),
        open: Vec<OpenChoice>,
        resumed: &ResumedGeneration,
        host: &dyn SubmissionHost,
    ) -> Result<Vec<Submitted>, ApiError> {
        let mut requests = SubmittedRequests::new(self.model, open.len());
        for (i, choice) in open.into_iter().enumerate() {
            let given = GivenProgress {
                cached_tokens: if i == 0 { resumed.cached_tokens } else { 0 },
            };
            let (prompt, at) = (choice.prompt, choice.at);
            let first_choice = u32::try_from(choice.number).unwrap_or(u32::MAX);
            let record = (first_choice, 1);
            let remote = self.remote_record(&prompts[prompt], record, &resumed.updates)?;
            let answered = (&prompts[prompt], limits[prompt]);
            let request = self.resumed_request(answered, choice, given, host);
            let request = Request {
                remote,
                media: self.media(&prompts[prompt])?,
                paused: resumed.paused,
                sampling: updated(request.sampling, &resumed.updates),
                ..request
            };
            requests.push(self.submit_request(prompt, at..at + 1, request)?);
        }
        Ok(requests.keep())
    }

    /// Opens the logs of one choice, which begin with the tokens so far. Returns the engine's side and the ids of the
    /// tokens so far; `None`: the choice has ended.
    fn reopen_choice(
        &self,
        (prompt, limits): (&PreparedPrompt, AnswerLimits),
        resumed: ResumedChoice,
        host: &dyn SubmissionHost,
        opened: &mut OpenedLogs,
    ) -> Result<Option<(Choice, Vec<u32>)>, ApiError> {
        let resumed = self.with_echoed_first(prompt, limits, resumed);
        let most = match resumed.end {
            Some(_) => 0,
            None => limits.max_tokens + limits.echoed_first,
        };
        let room = most.max(resumed.tokens.len());
        let mut writers = self.open_logs(prompt, room, host, opened)?;
        self.write_tokens(&resumed, &mut writers)?;
        let (log, given) = (opened.logs.last(), resumed.tokens.len() as u64);
        let gate = log.and_then(|log| log.gate.as_ref());
        if let Some(gate) = gate {
            gate.show(given);
        }
        writers.tokens.tap().accept(given);
        if let Some(top) = &writers.top {
            top.tap().accept(top.len());
        }
        if let Some(end) = resumed.end {
            writers.finish(end);
            if let Some(gate) = gate {
                gate.show_end();
            }
            return Ok(None);
        }
        let answered = &resumed.tokens[limits.echoed_first..];
        let answered: Vec<u32> = answered.iter().map(|token| token.id).collect();
        let mut rules = self.answer_rules(prompt);
        if let Some(end) = rules.replay(&answered, limits.max_tokens) {
            writers.finish(end);
            return Ok(None);
        }
        let choice = Choice {
            tokens: writers.tokens,
            top: writers.top,
            terminator: rules.terminator,
            constraint: rules.constraint,
        };
        Ok(Some((choice, answered)))
    }

    /// The choice with the prompt's first token at the beginning of the log, where nothing was recorded yet.
    fn with_echoed_first(
        &self,
        prompt: &PreparedPrompt,
        limits: AnswerLimits,
        mut resumed: ResumedChoice,
    ) -> ResumedChoice {
        if resumed.tokens.is_empty() {
            for &first in &prompt.ids[..limits.echoed_first] {
                let (first, top) = self.unscored(first);
                resumed.tokens.push(first);
                resumed.top = top;
            }
        }
        resumed
    }

    fn write_tokens(
        &self,
        resumed: &ResumedChoice,
        writers: &mut LogWriters,
    ) -> Result<(), ApiError> {
        let top_n = self.params.sampling.top_logprobs as usize;
        if resumed.top.len() != resumed.tokens.len() * top_n {
            return Err(unlike_the_request());
        }
        for (i, &token) in resumed.tokens.iter().enumerate() {
            writers.append(token, &resumed.top[i * top_n..(i + 1) * top_n])?;
        }
        Ok(())
    }

    /// The request of one choice, with the sampling parameters of the start.
    fn resumed_request(
        &self,
        (prompt, limits): (&PreparedPrompt, AnswerLimits),
        open: OpenChoice,
        given: GivenProgress,
        host: &dyn SubmissionHost,
    ) -> Request {
        let room = self.ending_alternatives();
        let progress = host.progress(open.prompt).with_given(given);
        let progress = progress.with_ending_room(room);
        let sampling = self.sampling_params(limits);
        let answered = open.answered.len();
        let ids = [&prompt.ids[..limits.prompt_len], &open.answered].concat();
        Request {
            max_tokens: limits.max_tokens - answered,
            sampling: SamplingParams {
                answered: sampling.answered + u32::try_from(answered).unwrap_or(u32::MAX),
                ..sampling
            },
            choices: vec![open.choice],
            first_choice: u32::try_from(open.number).unwrap_or(u32::MAX),
            ..self.empty_request(ids, Arc::new(progress), host)
        }
    }
}

impl AnswerRules {
    /// Advances over the tokens so far. Returns the end, if they complete the answer, in the engine's order of precedence.
    ///
    /// A panic of the condition or the constraint ends the answer as in the engine.
    fn replay(&mut self, answered: &[u32], max_tokens: usize) -> Option<End> {
        if answered.is_empty() {
            return None;
        }
        let replay = AssertUnwindSafe(|| self.replay_rules(answered));
        let end = catch_unwind(replay).unwrap_or(Some(End::Failed(FailCode::Panic)));
        end.or_else(|| (answered.len() >= max_tokens).then_some(End::Length))
    }

    fn replay_rules(&mut self, answered: &[u32]) -> Option<End> {
        if let Some(terminator) = &mut self.terminator {
            let mut tokens = answered.iter();
            if let Some(index) = tokens.find_map(|&token| terminator.push(token)) {
                return Some(End::Stop(Stop::StopString(index)));
            }
        }
        let constraint = self.constraint.as_mut()?;
        constraint.replay(answered);
        constraint.is_complete().then_some(End::Stop(Stop::Eos))
    }
}

/// The sampling parameters after these updates.
fn updated(mut sampling: SamplingParams, updates: &[RequestUpdate]) -> SamplingParams {
    updates
        .iter()
        .for_each(|update| update.change(&mut sampling));
    sampling
}

fn unlike_the_request() -> ApiError {
    let message = "the recorded choices do not belong to the request";
    ApiError::ours("internal_error", message)
}
