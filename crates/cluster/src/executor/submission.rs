//! From a message of a gateway to a submitted request, and the requests that are being submitted.
//!
//! A request that was replaced by a later attempt, or forgotten, keeps its place until its submission is done: the submission
//! holds the whole request, and a new one for each number of an attempt would have no bound.

use super::given_images::GivenImages;
use super::running::{AttemptOutputs, RunningAttempt};
use crate::messages::{Attempt, ContentIdentity, RUN_BYTES_MAX, Rejection, Run, RunReply};
use crate::names::InstanceId;
use generate::constraint::compiler::ConstraintCompiler;
use generate::embedding::EmbeddingVector;
use generate::error::{ApiError, ErrorKind};
use generate::images::{ImageRecord, Vision};
use generate::model_handle::ModelHandle;
use generate::prompt::IMAGE_CHANGED;
use generate::remote_request::{ChoiceSoFar, RemoteRequest, Resumption};
use generate::submit::NoHost;
use std::collections::BTreeMap;
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
    /// The arithmetic at a moment, of a device that may be given up; `None`: that of [`Self::identity`].
    arithmetic_now: Option<ArithmeticNow>,
}

/// The arithmetic of an engine at a moment.
pub type ArithmeticNow = Arc<dyn Fn() -> Option<String> + Send + Sync>;

impl ExecutorModel {
    /// A model, with a compiler of constraints of its own.
    pub fn new(key: String, identity: ContentIdentity, handle: ModelHandle) -> Self {
        Self {
            compiler: ConstraintCompiler::new(&handle),
            key,
            identity,
            handle,
            arithmetic_now: None,
        }
    }

    /// The model on a device that may be given up: `now` is the arithmetic at a moment.
    #[must_use]
    pub fn with_arithmetic(self, now: ArithmeticNow) -> Self {
        let arithmetic_now = Some(now);
        Self {
            arithmetic_now,
            ..self
        }
    }

    /// The arithmetic at a moment, if it can change.
    pub(crate) fn arithmetic_now(&self) -> Option<&ArithmeticNow> {
        self.arithmetic_now.as_ref()
    }

    /// The content with the arithmetic of this moment.
    fn identity_now(&self) -> ContentIdentity {
        let now = self.arithmetic_now.as_ref().and_then(|now| now());
        ContentIdentity {
            arithmetic: now.unwrap_or_else(|| self.identity.arithmetic.clone()),
            ..self.identity.clone()
        }
    }
}

/// Submits a request without images. Reads the record and compiles constraints, which may take time.
///
/// # Errors
/// The answer to the gateway if the request is not run.
pub fn start(models: &[ExecutorModel], run: Run, now: Instant) -> Result<RunningAttempt, RunReply> {
    ReadRun::read(models, run)?.submit(models, GivenImages::default(), now)
}

/// A request whose record was read.
pub(super) struct ReadRun {
    /// Place among the models.
    model: usize,
    run: Run,
    request: RemoteRequest,
}

impl ReadRun {
    /// Reads the record of a request for one of these models.
    ///
    /// # Errors
    /// As of [`start`].
    pub(super) fn read(models: &[ExecutorModel], run: Run) -> Result<Self, RunReply> {
        let model = models.iter().position(|model| model.key == run.model_key);
        let model = model.ok_or_else(|| {
            let message = format!("model_key: {:?} is not served", run.model_key);
            rejected(Rejection::UnknownModel, message)
        })?;
        if run.identity != models[model].identity_now() {
            let message = format!("identity: {:?} has other content", run.model_key);
            return Err(rejected(Rejection::OtherContent, message));
        }
        let request = RemoteRequest::decode(&run.request)
            .map_err(|why| rejected(Rejection::Invalid, why.to_string()))?;
        Ok(Self {
            model,
            run,
            request,
        })
    }

    /// The images that the record names.
    pub(super) fn images(&self) -> &[ImageRecord] {
        &self.request.images
    }

    /// Rules of the model's tower for images; `None`: the model reads text only.
    pub(super) fn vision(&self, models: &[ExecutorModel]) -> Option<Arc<Vision>> {
        models[self.model].handle.vision.clone()
    }

    /// Submits the request with its images.
    ///
    /// # Errors
    /// As of [`start`].
    pub(super) fn submit(
        self,
        models: &[ExecutorModel],
        given: GivenImages,
        now: Instant,
    ) -> Result<RunningAttempt, RunReply> {
        let (model, run, request) = (&models[self.model], self.run, self.request);
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
            images: given.images,
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
        let running = RunningAttempt::new(attempt, submitted, &run.choices, outputs);
        Ok(running.holding(given.share))
    }
}

pub(super) fn rejected(code: Rejection, message: impl Into<String>) -> RunReply {
    let message = message.into();
    RunReply::Rejected { code, message }
}

pub(super) fn rejection_of(why: &ApiError) -> RunReply {
    let code = match why.kind {
        // The tower, or the preparation of images, is another one than the gateway's.
        _ if why.code == IMAGE_CHANGED => Rejection::OtherContent,
        ErrorKind::Unavailable if why.code == "shutting_down" => Rejection::Leaving,
        ErrorKind::Unavailable => Rejection::Full,
        _ => Rejection::Invalid,
    };
    rejected(code, why.message.as_str())
}

/// Requests that are being submitted at one time.
pub const STARTING_MAX: usize = 256;
/// Bytes of these requests.
pub const STARTING_BYTES_MAX: usize = 4 * RUN_BYTES_MAX;
/// Bytes of a request besides its record, ids and updates.
const FIXED_BYTES: usize = 1024;

type Name = (InstanceId, Attempt);

/// The submissions, by name. One name can have several: a gateway may repeat a request that it had let go.
#[derive(Debug, Default)]
pub(super) struct StartingRequests {
    by_name: BTreeMap<Name, Vec<usize>>,
    count: usize,
    bytes: usize,
}

impl StartingRequests {
    /// Whether another request of so many bytes may be submitted.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let is_within = self.bytes.saturating_add(bytes) <= STARTING_BYTES_MAX;
        self.count < STARTING_MAX && (is_within || self.count == 0)
    }

    /// A submission begins.
    pub(super) fn begin(&mut self, name: Name, bytes: usize) {
        self.by_name.entry(name).or_default().push(bytes);
        self.count += 1;
        self.bytes += bytes;
    }

    /// A submission is done.
    pub(super) fn end(&mut self, name: Name) {
        let Some(sizes) = self.by_name.get_mut(&name) else {
            return;
        };
        if let Some(bytes) = sizes.pop() {
            self.count -= 1;
            self.bytes -= bytes;
        }
        if sizes.is_empty() {
            self.by_name.remove(&name);
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.count
    }
}

/// Bytes of a request in memory, about.
pub(super) fn bytes_of(run: &Run) -> usize {
    let ids = run.choices.iter().map(|choice| 4 * choice.ids.len() + 64);
    let updates = run.updates.iter();
    let updates = updates.map(|update| 4 * update.inject.len() + 128);
    FIXED_BYTES + run.request.len() + ids.sum::<usize>() + updates.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(handle: u64) -> Name {
        (InstanceId(1), Attempt { handle, attempt: 1 })
    }

    #[test]
    fn submissions_are_bounded_in_number_and_bytes() {
        let mut starting = StartingRequests::default();
        assert!(starting.has_room(usize::MAX), "one request always fits");
        starting.begin(name(1), STARTING_BYTES_MAX - 10);
        assert!(starting.has_room(10) && !starting.has_room(11));
        starting.end(name(2));
        assert!(
            !starting.has_room(11),
            "another name's end gives nothing back"
        );
        starting.end(name(1));
        for handle in 0..STARTING_MAX as u64 {
            assert!(starting.has_room(1));
            starting.begin(name(handle / 2), 1);
        }
        assert!(!starting.has_room(0));
        for handle in 0..STARTING_MAX as u64 {
            starting.end(name(handle / 2));
        }
        starting.end(name(0));
        let left = (starting.count, starting.bytes, starting.by_name.len());
        assert_eq!(left, (0, 0, 0));
    }
}
