//! Records of requests for engines of other processes.

use super::Submission;
use crate::error::ApiError;
use crate::prompt::PreparedPrompt;
use crate::prompt_record::PromptRecord;
use crate::remote_request::{RecordTerms, RemoteRequest, merged};
use crate::request::GenerationParams;
use engine::RequestUpdate;
use std::sync::Arc;

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
            embedding: None,
        }
    }

    /// The encoded record, where the engine is in another process.
    pub(super) fn remote_record(
        &self,
        prompt: &PreparedPrompt,
        choices: (u32, usize),
        updates: &[RequestUpdate],
    ) -> Result<Option<Arc<[u8]>>, ApiError> {
        if !self.model.engine.is_remote() {
            return Ok(None);
        }
        let request = self.remote_request(prompt, choices, updates);
        Ok(Some(request.encode()?.into()))
    }
}
