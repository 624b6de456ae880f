//! From prompt ids to a running generation: logs opened, requests submitted.

use crate::admission::Permit;
use crate::ask::Control;
use crate::error::ApiError;
use crate::fold::{Fold, FoldOptions};
use crate::generation::{ChoiceReader, Generation, Submitted};
use crate::keys::KeyPermit;
use crate::prepare::Prepared;
use crate::served::ServedModel;
use crate::terminator::StopTerminator;
use engine::{Account, Choice, Progress, Rejected, Request, Sampling, Terminator, Terms};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::PoolExhausted;

/// What all prompts of one request share.
pub(crate) struct Launch<'a> {
    pub(crate) served: &'a ServedModel,
    pub(crate) control: &'a Control,
    /// Answers per prompt.
    pub(crate) n: usize,
    pub(crate) seed: u64,
    pub(crate) deadline: Option<Instant>,
    /// Whose share of the engine it uses.
    pub(crate) account: Account,
    pub(crate) credit_window: u64,
    pub(crate) retry_after: Duration,
}

impl Launch<'_> {
    /// Opens and submits everything, or nothing: what was submitted before a refusal is cancelled.
    pub(crate) fn start(
        &self,
        prompts: Vec<Prepared>,
        permit: Permit,
        key: KeyPermit,
    ) -> Result<Generation, ApiError> {
        let mut submitted = Vec::with_capacity(prompts.len());
        let mut readers = Vec::with_capacity(prompts.len() * self.n);
        let prompt_tokens = prompts.iter().map(|prompt| prompt.ids.len() as u64).sum();
        let mut refused = None;
        for prompt in prompts {
            match self.submit(prompt, &mut readers) {
                Ok(request) => submitted.push(request),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let generation = Generation::new(
            self.served.engine.clone(),
            submitted,
            readers,
            prompt_tokens,
            permit,
            key,
        );
        refused.map_or(Ok(generation), Err)
    }

    fn submit(
        &self,
        prompt: Prepared,
        readers: &mut Vec<ChoiceReader>,
    ) -> Result<Submitted, ApiError> {
        let room = self.served.context_max - prompt.ids.len();
        let max_tokens = self.control.max_tokens.map_or(room, |max| max.min(room));
        let mut choices = Vec::with_capacity(self.n);
        for _ in 0..self.n {
            let (choice, reader) = self.open(&prompt, max_tokens)?;
            choices.push(choice);
            readers.push(reader);
        }
        let progress = Arc::new(Progress::default());
        let request = Request {
            prompt: prompt.ids,
            sampling: self.sampling(),
            max_tokens,
            eos: self.eos(),
            choices,
            deadline: self.deadline,
            credit_window: self.credit_window,
            terms: Terms {
                account: self.account,
                ..Terms::default()
            },
            progress: Arc::clone(&progress),
        };
        match self.served.engine.submit(request) {
            Ok(id) => Ok(Submitted { id, progress }),
            Err(rejected) => Err(self.rejected(&rejected)),
        }
    }

    /// One choice: the engine's end and ours.
    fn open(
        &self,
        prompt: &Prepared,
        max_tokens: usize,
    ) -> Result<(Choice, ChoiceReader), ApiError> {
        let (served, control) = (self.served, self.control);
        let top_n = control.sampling.top_logprobs as usize;
        let (tokens, reader) =
            stream::open(&served.token_pool, max_tokens).map_err(|e| self.no_segments(e))?;
        let top = match top_n {
            0 => None,
            n => Some(
                stream::open(&served.top_pool, max_tokens * n).map_err(|e| self.no_segments(e))?,
            ),
        };
        let (top, top_reader) = top.map_or((None, None), |(writer, reader)| {
            (Some(writer), Some((reader, top_n)))
        });
        let terminator = (!control.stops.is_empty()).then(|| {
            Box::new(StopTerminator::new(
                &served.tokenizer,
                prompt.at_text_start,
                &control.stops,
            )) as Box<dyn Terminator>
        });
        let options = FoldOptions {
            at_text_start: prompt.at_text_start,
            logprobs: control.sampling.logprobs,
            top_n,
        };
        let fold = Fold::new(&served.tokenizer, &control.stops, options);
        let reader = ChoiceReader::new(reader, top_reader, fold, prompt.preface.clone());
        Ok((
            Choice {
                tokens,
                top,
                terminator,
                constraint: None,
            },
            reader,
        ))
    }

    fn sampling(&self) -> Sampling {
        Sampling {
            seed: self.seed,
            ..self.control.sampling.clone()
        }
    }

    /// The model's end-of-sequence ids and the caller's. A caller who wants to go on after
    /// end-of-sequence and names other ids to stop at means those alone.
    fn eos(&self) -> Arc<[u32]> {
        let extra = &self.control.stop_token_ids;
        if extra.is_empty() {
            return Arc::clone(&self.served.eos);
        }
        let own: &[u32] = if self.control.ignore_eos {
            &[]
        } else {
            &self.served.eos
        };
        own.iter().chain(extra).copied().collect()
    }

    fn no_segments(&self, _: PoolExhausted) -> ApiError {
        ApiError::capacity(
            "overloaded",
            "no room for another stream of this length",
            self.retry_after,
        )
    }

    fn rejected(&self, rejected: &Rejected) -> ApiError {
        match rejected {
            Rejected::Full(_) => ApiError::capacity(
                "queue_full",
                "too many requests are waiting",
                self.retry_after,
            ),
            Rejected::Closed(_) => ApiError::capacity(
                "shutting_down",
                "the server is shutting down",
                self.retry_after,
            ),
            Rejected::Invalid(_, why) => ApiError::bad_request("invalid_value", why.clone()),
        }
    }
}
