//! From prompt ids to a running generation: logs opened, requests submitted.

use crate::gateway::admission::Permit;
use crate::gateway::served::ServedModel;
use crate::gateway::streams::{ChoiceLog, Run, Started, StartedGeneration, Streams, Work};
use engine::{
    Choice, Constraint, Progress, Rejected, Request, SamplingParams, StopCondition, Terms, Token,
    TopLogprob,
};
use generate::constraint::harmony::{Channelled, Channels};
use generate::constraint::mask_worker::Masks;
use generate::constraint::prompt_logprobs::{self, AfterPrompt, Prescribed};
use generate::constraint::reasoning_budget::Thinking;
use generate::constraint::strict_tools::{Beside, StrictCalls, StrictGrammars, Unspelled};
use generate::constraint::text_delimiters::{SpelledForm, SpelledThinking};
use generate::error::ApiError;
use generate::output::choice_reader::LogReaders;
use generate::prompt::PreparedPrompt;
use generate::request::Control;
use generate::stop::StopTerminator;
use generate::stream_source::Submitted;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Owner, PoolExhausted, Reader, SegmentPool, Writer};
use text::{DelimiterSet, Grammar};

/// What all prompts of one request share.
pub(crate) struct Launch<'a> {
    pub(crate) served: &'a ServedModel,
    pub(crate) streams: &'a Streams,
    pub(crate) control: &'a Control,
    /// What `control.form` came to.
    pub(crate) grammar: Option<&'a Grammar>,
    /// What binds the calls that answers make unasked.
    pub(crate) strict: Option<&'a StrictGrammars>,
    /// What a bound answer is searched for: what closes its thoughts, or what its channels begin and end with.
    pub(crate) marks: Option<&'a Arc<DelimiterSet>>,
    pub(crate) masks: &'a Arc<Masks>,
    /// Answers per prompt.
    pub(crate) n: usize,
    pub(crate) seed: u64,
    pub(crate) deadline: Option<Instant>,
    /// How urgent it is, whose share of the engine it uses, and what clocks run.
    pub(crate) terms: Terms,
    pub(crate) credit_window: u64,
    /// The answer's end tells the prompt's ids.
    pub(crate) tells_prompt: bool,
    /// Whose ended streams make room first.
    pub(crate) owner: Owner,
    pub(crate) retry_after: Duration,
}

/// All choices' logs so far, and their first readers.
struct Opened {
    logs: Vec<ChoiceLog>,
    readers: Vec<LogReaders>,
}

/// One choice's logs: who writes them, and who reads them first.
struct Logs {
    tokens: Writer<Token>,
    top: Option<Writer<TopLogprob>>,
    readers: LogReaders,
}

impl Opened {
    fn with_capacity(choices: usize) -> Self {
        Self {
            logs: Vec::with_capacity(choices),
            readers: Vec::with_capacity(choices),
        }
    }
}

impl Launch<'_> {
    /// Opens and submits everything, or nothing: what was submitted before a refusal is cancelled.
    /// Gives the first readers of all choices' logs.
    pub(crate) fn start(
        &self,
        prompts: Vec<PreparedPrompt>,
        permit: Permit,
        run: &mut Run,
    ) -> Result<Vec<LogReaders>, ApiError> {
        let pulse = permit.pulse();
        let work = Arc::new(Work::new(permit, run.entry(), self.streams.unread()));
        let mut requests = Vec::with_capacity(prompts.len());
        let mut opened = Opened::with_capacity(prompts.len() * self.n);
        let prompt_tokens = prompts.iter().map(|prompt| prompt.ids.len() as u64).sum();
        let entry = Arc::clone(run.entry());
        for (i, prompt) in prompts.into_iter().enumerate() {
            let progress = Progress::followed(entry.transitions().follower(i));
            match self.submit(prompt, progress, &work, &mut opened) {
                Ok(request) => requests.push(request),
                Err(error) => {
                    let cancel = |request: &Submitted| self.served.handle.engine.cancel(request.id);
                    requests.iter().for_each(cancel);
                    return Err(error);
                }
            }
        }
        let started = Started {
            generation: StartedGeneration {
                engine: self.served.handle.engine.clone(),
                tokenizer: Arc::clone(&self.served.handle.tokenizer),
                requests,
                choices: opened.logs,
                prompt_tokens,
            },
            program: None,
        };
        run.start(started, pulse);
        Ok(opened.readers)
    }

    fn submit(
        &self,
        prompt: PreparedPrompt,
        progress: Progress,
        work: &Arc<Work>,
        opened: &mut Opened,
    ) -> Result<Submitted, ApiError> {
        let room = self.served.handle.context_max - prompt.ids.len();
        let mut max_tokens = self.control.max_tokens.map_or(room, |max| max.min(room));
        let mut given = prompt.ids.len();
        if self.control.scored {
            let ends = (!self.control.sampling.ignore_eos).then(|| self.eos());
            max_tokens = prompt_logprobs::answer_tokens(&prompt.ids, max_tokens, ends.as_deref())?;
            given = 1;
        }
        let mut choices = Vec::with_capacity(self.n);
        for _ in 0..self.n {
            choices.push(self.open(&prompt, max_tokens, opened)?);
        }
        let progress = Arc::new(progress);
        let (mut ids, mut sampling) = (prompt.ids, self.sampling());
        sampling.min_tokens += u32::try_from(ids.len() - given).unwrap_or(u32::MAX);
        ids.truncate(given);
        let request = Request {
            prompt: ids,
            sampling,
            max_tokens,
            eos: self.eos(),
            choices,
            embedding: None,
            deadline: self.deadline,
            credit_window: self.credit_window,
            terms: self.terms,
            progress: Arc::clone(&progress),
            permits: Some(work.part(&progress, self.served.handle.engine.epoch())),
            held: None,
        };
        match self.served.handle.engine.submit(request) {
            Ok(id) => Ok(Submitted { id, progress }),
            Err(why) => Err(rejected(&why, self.retry_after)),
        }
    }

    /// One choice: the engine's end and ours.
    fn open(
        &self,
        prompt: &PreparedPrompt,
        max_tokens: usize,
        opened: &mut Opened,
    ) -> Result<Choice, ApiError> {
        let echoed = if self.control.scored {
            prompt.ids.len()
        } else {
            0
        };
        let Logs {
            tokens,
            top,
            readers,
        } = self.open_logs(max_tokens, &prompt.ids[..echoed.min(1)])?;
        opened.logs.push(ChoiceLog {
            tokens: readers.tokens.tap(),
            top: readers.top.as_ref().map(Reader::tap),
            at_text_start: prompt.at_text_start || echoed > 0,
            reading: prompt.reading.clone(),
            echoed: echoed as u64,
            preface: prompt.preface.clone(),
            prompt: self.tells_prompt.then(|| prompt.ids.as_slice().into()),
        });
        opened.readers.push(readers);
        let (mut terminator, mut constraint) = (self.terminator(prompt), self.constraint(prompt));
        if echoed > 0 {
            let others = &prompt.ids[1..];
            let after =
                |watch| Box::new(AfterPrompt::new(others.len(), watch)) as Box<dyn StopCondition>;
            terminator = terminator.map(after);
            constraint = Some(Box::new(Prescribed::new(others, constraint)));
        }
        Ok(Choice {
            tokens,
            top,
            terminator,
            constraint,
        })
    }

    /// The logs of one choice, which begin with what is `told` and have room for so many tokens after that.
    fn open_logs(&self, max_tokens: usize, told: &[u32]) -> Result<Logs, ApiError> {
        let top_n = self.control.sampling.top_logprobs as usize;
        let (room, pools) = (max_tokens + told.len(), self.served);
        let (mut tokens, reader) = self.open_log(&pools.handle.token_pool, room)?;
        let top = match top_n {
            0 => None,
            n => Some(self.open_log(&pools.handle.top_pool, room * n)?),
        };
        let (mut top, top_reader) = top.unzip();
        for &first in told {
            let top = top.as_mut().map(|top| (top, top_n));
            let begun = prompt_logprobs::begin(first, &mut tokens, top);
            begun.map_err(|_| ApiError::ours("internal_error", "a log has no room"))?;
        }
        let readers = LogReaders {
            tokens: reader,
            top: top_reader,
        };
        Ok(Logs {
            tokens,
            top,
            readers,
        })
    }

    /// What looks for the end of its text, where it may have one that is not a token.
    fn terminator(&self, prompt: &PreparedPrompt) -> Option<Box<dyn StopCondition>> {
        let (control, reading) = (self.control, &prompt.reading);
        if control.stops.is_empty() && !control.calling.once {
            return None;
        }
        let stops = StopTerminator::new(
            &self.served.handle.tokenizer,
            prompt.at_text_start,
            reading.shown(),
            &control.stops,
        );
        let calls = control.calling.once.then(|| reading.parser());
        Some(Box::new(stops.after_one_call(calls)))
    }

    /// The form of its answer, what binds its calls, its budget for thinking, or several of them.
    fn constraint(&self, prompt: &PreparedPrompt) -> Option<Box<dyn Constraint>> {
        let reading = &prompt.reading;
        let budget = self.control.thinking_max;
        let is_bound = self.grammar.is_some() || self.strict.is_some() || budget.is_some();
        match (reading.channels(), reading.marks(), reading.spelled()) {
            (Some(channels), ..) if is_bound => Some(self.channelled(channels, budget)),
            (_, Some(marks), _) if is_bound => {
                let thinking = Thinking::new(marks.clone(), budget, &self.eos(), self.form());
                Some(Box::new(thinking))
            }
            (.., Some(spelled)) if is_bound => {
                let form = self.form().zip(self.form()).zip(self.marks);
                let form = form.map(|((direct, after), marks)| {
                    SpelledForm::new(direct, after, marks, &self.eos())
                });
                let (tokenizer, at_start) = (&self.served.handle.tokenizer, prompt.at_text_start);
                let spelled = spelled.clone();
                let thinking = SpelledThinking::new(spelled, budget, tokenizer, at_start, form);
                Some(Box::new(thinking))
            }
            _ => self.form(),
        }
    }

    /// What its answer proper is bound by, at the beginning.
    fn form(&self) -> Option<Box<dyn Constraint>> {
        let vocab = self.served.handle.tokenizer.vocab_size();
        match (self.grammar, self.strict) {
            (Some(grammar), _) => Some(Box::new(self.masks.start(grammar.matcher(), vocab))),
            (None, Some(strict)) => Some(Box::new(StrictCalls::new(strict, self.masks, vocab))),
            (None, None) => None,
        }
    }

    /// Constraint of an answer in Harmony's channels. Calls that it makes unasked are bound in all of them.
    fn channelled(&self, channels: &Channels, budget: Option<u64>) -> Box<dyn Constraint> {
        let of = |budget, form| Channelled::new(channels.clone(), budget, &self.eos(), form);
        match (self.form(), self.strict) {
            (Some(strict), Some(_)) if budget.is_some() => Box::new(Beside {
                first: Box::new(of(budget, None)),
                second: strict,
            }),
            (Some(strict), Some(_)) => strict,
            (Some(form), None) => {
                let form = match self.marks {
                    Some(marks) => Box::new(Unspelled::new(form, marks)),
                    None => form,
                };
                Box::new(of(budget, Some(form)))
            }
            (None, _) => Box::new(of(budget, None)),
        }
    }

    /// Streams that have ended make room where there is none.
    fn open_log<T: Copy + Send + Sync + 'static>(
        &self,
        pool: &SegmentPool<T>,
        items: usize,
    ) -> Result<(Writer<T>, Reader<T>), ApiError> {
        loop {
            match stream::open(pool, items) {
                Ok(log) => return Ok(log),
                Err(_) if self.streams.make_room(self.owner) => {}
                Err(full) => return Err(self.no_segments(full)),
            }
        }
    }

    fn sampling(&self) -> SamplingParams {
        SamplingParams {
            seed: self.seed,
            ..self.control.sampling.clone()
        }
    }

    /// The model's end-of-sequence ids and the caller's. A caller who wants to go on after
    /// end-of-sequence and names other ids to stop at means those alone.
    fn eos(&self) -> Arc<[u32]> {
        let extra = &self.control.stop_token_ids;
        if extra.is_empty() {
            return Arc::clone(&self.served.handle.eos);
        }
        let own: &[u32] = if self.control.ignore_eos {
            &[]
        } else {
            &self.served.handle.eos
        };
        own.iter().chain(extra).copied().collect()
    }

    /// Ended streams that are not read are evicted for the next request.
    fn no_segments(&self, _: PoolExhausted) -> ApiError {
        self.streams.unread().cut_oldest();
        ApiError::capacity(
            "overloaded",
            "no room for another stream of this length",
            self.retry_after,
        )
    }
}

/// What the engine's refusal means to the caller.
pub(crate) fn rejected(why: &Rejected, retry_after: Duration) -> ApiError {
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
