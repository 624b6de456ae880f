//! Submission of a request of another process to the engine of this one.

use super::RemoteRequest;
use crate::constraint::compiler::{ConstraintCompiler, ConstraintOptions, OutputConstraints};
use crate::embedding::EmbeddingVector;
use crate::error::ApiError;
use crate::images::PreparedImage;
use crate::model_handle::ModelHandle;
use crate::output::choice_reader::LogReaders;
use crate::prompt::{PreparedPrompt, PromptEncoder};
use crate::request_record::PromptRecord;
use crate::stream_source::StartedGeneration;
use crate::submit::{ResumedChoice, ResumedGeneration, Submission, SubmissionHost};
use engine::RequestUpdate;
use std::time::{Duration, Instant};
use stream::End;

/// One choice so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChoiceSoFar {
    /// Ids of all items of the log, with the prompt's first token where the request has `prompt_logprobs`.
    pub ids: Vec<u32>,
    /// Whether the choice has ended; its log stays as it is.
    pub has_ended: bool,
}

/// Progress of a request beside its record when it is submitted.
#[derive(Clone, Debug, Default)]
pub struct Resumption {
    /// The choices, as many as the request has.
    pub choices: Vec<ChoiceSoFar>,
    /// When the request has to be done.
    pub deadline: Option<Instant>,
    /// Arrival of the request.
    pub since: Option<Instant>,
    /// Whether the request is submitted paused.
    pub is_paused: bool,
    /// Further sampling updates in effect; their injected tokens are among the tokens so far.
    pub updates: Vec<RequestUpdate>,
    /// When to try again after a rejection for want of capacity.
    pub retry_after: Duration,
    /// Receives the vector of an embedding.
    pub vector: EmbeddingVector,
    /// The images of the request, decoded, by number.
    pub images: Vec<Option<PreparedImage>>,
}

impl RemoteRequest {
    /// Opens the logs, which begin with the tokens so far, and submits the choices that have not ended. The tokens so far
    /// have no log-probabilities. Compiles constraints, which may take time.
    ///
    /// # Errors
    /// The request does not fit the model, or the engine or the token pools have no room.
    pub fn submit(
        &self,
        model: &ModelHandle,
        compiler: &ConstraintCompiler,
        resumption: Resumption,
        host: &dyn SubmissionHost,
    ) -> Result<(StartedGeneration, Vec<LogReaders>), ApiError> {
        if let Some(pooling) = self.embedding {
            return self.submit_embedding(pooling, model, &resumption, host);
        }
        let mut prompt = self.restore_prompt(model)?;
        prompt.attach(&resumption.images)?;
        let prompts = [prompt];
        let options = ConstraintOptions::new(&self.params, &prompts, false);
        let constraints = compiler.compile(&options)?;
        let submission = self.submission(model, &constraints, &resumption);
        let echoed = usize::from(self.params.prompt_logprobs);
        let is_new = |choice: &ChoiceSoFar| !choice.has_ended && choice.ids.len() <= echoed;
        let has_changed = resumption.is_paused
            || self.in_effect != RequestUpdate::default()
            || !resumption.updates.is_empty();
        if self.first_choice == 0 && !has_changed && resumption.choices.iter().all(is_new) {
            self.check_choices(&resumption.choices, model)?;
            return submission.start(prompts.into(), host);
        }
        let resumed = self.resumed_generation(resumption, model)?;
        submission.resume_from(self.first_choice, &prompts, resumed, host)
    }

    fn restore_prompt(&self, model: &ModelHandle) -> Result<PreparedPrompt, ApiError> {
        let room = self.context_max.saturating_sub(self.prompt.ids.len());
        let most = self.params.max_tokens.map_or(room, |max| max.min(room));
        if self.prompt.ids.len() + most > model.context_max {
            let message = format!(
                "context_max: prompt and answer may have {} tokens; the model's context has {}",
                self.prompt.ids.len() + most,
                model.context_max
            );
            return Err(ApiError::field(
                "context_max",
                "context_length_exceeded",
                message,
            ));
        }
        let record = PromptRecord::clone(&self.prompt);
        // No date is rendered: the prompt is a record.
        PromptEncoder::new(model, 0).restore(record, self.parse_options())
    }

    fn submission<'a>(
        &'a self,
        model: &'a ModelHandle,
        constraints: &'a OutputConstraints,
        resumption: &Resumption,
    ) -> Submission<'a> {
        Submission {
            model,
            params: &self.params,
            constraints,
            n: self.n,
            context_max: self.context_max,
            seed: self.seed,
            deadline: resumption.deadline,
            terms: self.terms.terms(resumption.since),
            credit_window: self.credit_window,
            reports_prompt: false,
            retry_after: resumption.retry_after,
        }
    }

    fn resumed_generation(
        &self,
        resumption: Resumption,
        model: &ModelHandle,
    ) -> Result<ResumedGeneration, ApiError> {
        self.check_choices(&resumption.choices, model)?;
        let top_n = self.params.sampling.top_logprobs as usize;
        let mut updates = vec![self.in_effect.clone()];
        updates.extend(resumption.updates);
        let choices = resumption.choices.into_iter();
        Ok(ResumedGeneration {
            choices: choices
                .map(|choice| resumed_choice(&choice, top_n))
                .collect(),
            paused: resumption.is_paused,
            updates,
            ..ResumedGeneration::default()
        })
    }

    /// Checks that the tokens so far are tokens of this request.
    pub(super) fn check_choices(
        &self,
        choices: &[ChoiceSoFar],
        model: &ModelHandle,
    ) -> Result<(), ApiError> {
        let invalid = |message: String| Err(ApiError::field("choices", "invalid_value", message));
        if choices.len() != self.n {
            let count = choices.len();
            return invalid(format!("choices: has {count}; the request has {}", self.n));
        }
        let vocab = model.tokenizer.vocab_size();
        for choice in choices {
            if choice.ids.iter().any(|&id| id as usize >= vocab) {
                return invalid("choices: an id is not in the model's vocabulary".to_owned());
            }
            let len = choice.ids.len();
            if len > self.context_max {
                let most = self.context_max;
                return invalid(format!("choices: has {len} tokens; at most {most}"));
            }
        }
        Ok(())
    }
}

/// The choice with unknown log-probabilities.
fn resumed_choice(choice: &ChoiceSoFar, top_n: usize) -> ResumedChoice {
    ResumedChoice {
        end: choice.has_ended.then_some(End::Lost),
        ..ResumedChoice::of_ids(&choice.ids, top_n)
    }
}
