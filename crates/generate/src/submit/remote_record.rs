//! Records of requests for engines of other processes.

use super::{Submission, SubmissionHost};
use crate::error::ApiError;
use crate::prompt::PreparedPrompt;
use crate::prompt_record::PromptRecord;
use crate::remote_request::{RecordTerms, RemoteRequest, RequestOrigin, merged};
use crate::request::GenerationParams;
use engine::RequestUpdate;
use engine::remote::{ContinuedRequest, RemoteRecord};

impl Submission<'_> {
    /// The record of a request with `n` choices of a prompt from `first_choice` on, with these updates in effect.
    pub fn remote_request(
        &self,
        prompt: &PreparedPrompt,
        (first_choice, n): (u32, usize),
        updates: &[RequestUpdate],
    ) -> RemoteRequest {
        RemoteRequest {
            prompt: PromptRecord {
                echo_text: None,
                ..prompt.to_record()
            },
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
            origin: None,
            embedding: None,
        }
    }

    /// The encoded record, where the engine is in another process.
    pub(super) fn remote_record(
        &self,
        (number, prompt): (usize, &PreparedPrompt),
        choices: (u32, usize),
        updates: &[RequestUpdate],
        host: &dyn SubmissionHost,
    ) -> Result<Option<RemoteRecord>, ApiError> {
        if !self.model.engine.is_remote() {
            return Ok(None);
        }
        let mut request = self.remote_request(prompt, choices, updates);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let stream = host.stream();
        let origin = stream.map(|stream| RequestOrigin::new(stream.id, stream.generation, number));
        let choice = origin.as_ref().and_then(|origin| origin.choice(choices.0));
        let continued = stream.filter(|stream| stream.is_continued).zip(choice);
        request.origin = origin;
        Ok(Some(RemoteRecord {
            bytes: request.encode()?.into(),
            continued: continued.map(|(stream, choice)| {
                Box::new(ContinuedRequest {
                    choice,
                    generation: stream.generation,
                    in_effect: request.in_effect.clone(),
                })
            }),
        }))
    }
}
