//! From a message of a gateway to a submitted request.

use super::running::{AttemptOutputs, RunningAttempt};
use crate::messages::{Attempt, ContentIdentity, Rejection, Run, RunReply};
use generate::constraint::compiler::ConstraintCompiler;
use generate::embedding::EmbeddingVector;
use generate::error::{ApiError, ErrorKind};
use generate::model_handle::ModelHandle;
use generate::remote_request::{ChoiceSoFar, RemoteRequest, Resumption};
use generate::submit::NoHost;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model whose engine computes requests of gateways.
pub struct ExecutorModel {
    /// Name in requests.
    pub key: String,
    /// Content.
    pub identity: ContentIdentity,
    /// The model with its engine.
    pub handle: ModelHandle,
    compiler: ConstraintCompiler,
}

impl ExecutorModel {
    /// A model, with a compiler of constraints of its own.
    pub fn new(key: String, identity: ContentIdentity, handle: ModelHandle) -> Self {
        Self {
            compiler: ConstraintCompiler::new(&handle),
            key,
            identity,
            handle,
        }
    }
}

/// Submits a request. Reads the record and compiles constraints, which may take time.
///
/// # Errors
/// The answer to the gateway if the request is not run.
pub fn start(models: &[ExecutorModel], run: Run, now: Instant) -> Result<RunningAttempt, RunReply> {
    let model = models.iter().find(|model| model.key == run.model_key);
    let model = model.ok_or_else(|| {
        let message = format!("model_key: {:?} is not served", run.model_key);
        rejected(Rejection::UnknownModel, message)
    })?;
    if run.identity != model.identity {
        let message = format!("identity: {:?} has other content", run.model_key);
        return Err(rejected(Rejection::OtherContent, message));
    }
    let request = RemoteRequest::decode(&run.request)
        .map_err(|why| rejected(Rejection::Invalid, why.to_string()))?;
    let choices = run.choices.iter().map(|choice| ChoiceSoFar {
        ids: choice.ids.clone(),
        has_ended: choice.has_ended,
    });
    let later = |ms| now.checked_add(Duration::from_millis(ms));
    let resumption = Resumption {
        choices: choices.collect(),
        deadline: run.deadline_ms.and_then(later),
        since: now.checked_sub(Duration::from_millis(run.age_ms)),
        is_paused: run.is_paused,
        updates: run.updates,
        retry_after: Duration::ZERO,
        vector: EmbeddingVector::default(),
    };
    let vector = request.embedding.map(|_| Arc::clone(&resumption.vector));
    let submitted = request
        .submit(&model.handle, &model.compiler, resumption, &NoHost)
        .map_err(|why| rejection_of(&why))?;
    let attempt = Attempt {
        handle: run.handle,
        attempt: run.attempt,
    };
    let outputs = AttemptOutputs {
        top_n: request.params.sampling.top_logprobs as usize,
        vector,
    };
    let given = &run.choices;
    Ok(RunningAttempt::new(attempt, submitted, given, outputs))
}

pub(super) fn rejected(code: Rejection, message: impl Into<String>) -> RunReply {
    let message = message.into();
    RunReply::Rejected { code, message }
}

fn rejection_of(why: &ApiError) -> RunReply {
    let code = match why.kind {
        ErrorKind::Unavailable if why.code == "shutting_down" => Rejection::Leaving,
        ErrorKind::Unavailable => Rejection::Full,
        _ => Rejection::Invalid,
    };
    rejected(code, why.message.as_str())
}
