//! Embeddings that an engine of another process computes.

use super::resumption::Resumption;
use super::{RecordTerms, RemoteRequest};
use crate::embedding::EmbeddingRequest;
use crate::error::ApiError;
use crate::model_handle::ModelHandle;
use crate::output::choice_reader::LogReaders;
use crate::output::parser_config::ParserConfig;
use crate::request::GenerationParams;
use crate::request_record::PromptRecord;
use crate::stream_source::{ChoiceLog, StartedGeneration, Submitted};
use crate::submit::{SubmissionHost, open_log, rejected};
use engine::{Embedding, Pooling, RequestUpdate};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// [`Pooling`] by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordPooling {
    /// The last token's hidden state.
    Last,
    /// The mean.
    Mean,
    /// The first token's hidden state.
    First,
}

impl From<Pooling> for RecordPooling {
    fn from(pooling: Pooling) -> Self {
        match pooling {
            Pooling::Last => Self::Last,
            Pooling::Mean => Self::Mean,
            Pooling::First => Self::First,
        }
    }
}

impl From<RecordPooling> for Pooling {
    fn from(pooling: RecordPooling) -> Self {
        match pooling {
            RecordPooling::Last => Self::Last,
            RecordPooling::Mean => Self::Mean,
            RecordPooling::First => Self::First,
        }
    }
}

impl RemoteRequest {
    /// The record of a request for an embedding.
    pub(crate) fn of_embedding(request: &EmbeddingRequest, model: &ModelHandle) -> Self {
        Self {
            prompt: PromptRecord {
                ids: request.prompt.clone(),
                ..PromptRecord::default()
            },
            params: GenerationParams {
                lora: request.lora.clone(),
                ..GenerationParams::default()
            },
            n: 1,
            first_choice: 0,
            context_max: model.context_max,
            seed: 0,
            credit_window: 0,
            terms: RecordTerms::new(&request.terms),
            in_effect: RequestUpdate::default(),
            embedding: Some(request.embedding.pooling.into()),
        }
    }

    /// Submits the prompt. The vector is in the resumption's place before the log ends.
    pub(super) fn submit_embedding(
        &self,
        pooling: RecordPooling,
        model: &ModelHandle,
        resumption: &Resumption,
        host: &dyn SubmissionHost,
    ) -> Result<(StartedGeneration, Vec<LogReaders>), ApiError> {
        self.check_choices(&resumption.choices, model)?;
        let begun = |choice: &super::ChoiceSoFar| choice.has_ended || !choice.ids.is_empty();
        if resumption.choices.iter().any(begun) {
            let message = "choices: an embedding has no tokens";
            return Err(ApiError::field("choices", "invalid_value", message));
        }
        if model.engine.hidden_dim() == 0 {
            let message = "embedding: this model gives none";
            return Err(ApiError::field("embedding", "not_supported", message));
        }
        let (tokens, reader) = open_log(&model.token_pool, 1, host, resumption.retry_after)?;
        let request = EmbeddingRequest {
            prompt: self.prompt.ids.clone(),
            embedding: Embedding {
                pooling: pooling.into(),
                vector: Arc::clone(&resumption.vector),
            },
            deadline: resumption.deadline,
            lora: self.params.lora.clone(),
            terms: self.terms.terms(resumption.since),
        };
        let mut request = request.into_request(model, tokens)?;
        request.paused = resumption.is_paused;
        let progress = Arc::clone(&request.progress);
        let submitted = model.engine.submit(request);
        let id = submitted.map_err(|why| rejected(&why, resumption.retry_after))?;
        let log = ChoiceLog {
            tokens: reader.tap(),
            gate: None,
            top: None,
            at_text_start: false,
            reading: ParserConfig::default(),
            echoed: 0,
            echo_text: None,
            prompt: None,
        };
        let started = StartedGeneration {
            image_tokens: 0,
            described: None,
            engine: model.engine.clone(),
            tokenizer: Arc::clone(&model.tokenizer),
            requests: vec![Submitted {
                id,
                progress,
                prompt: 0,
                choices: 0..1,
            }],
            choices: vec![log],
            prompt_tokens: self.prompt.ids.len() as u64,
            resumed: None,
        };
        let readers = LogReaders {
            tokens: reader,
            top: None,
        };
        Ok((started, vec![readers]))
    }
}
