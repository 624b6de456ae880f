//! The registry's record of a stream: metadata, logs, state, and all that a later subscriber needs to read the
//! stream.
//!
//! A stream is *waiting* (for its permit) until *started* (the logs exist, the engine has the requests) or
//! *rejected*. The change happens once and wakes all tasks that wait for the change. A stream can be canceled in
//! either state. The end of a stream is the end of its logs; no call reports the end here.

use super::answer_storage::AnswerStorage;
use super::change_of_owner::StreamOrigin;
use super::control::{ControlHistory, Steering};
use super::image_progress::ImageProgress;
use super::stream_credit::CreditOwner;
use super::subscriber::Attendance;
use super::transitions::Transitions;
use super::undelivered::ConnectionHandle;
use super::{DurableStream, RunControl};
use crate::records::end_name;
use admission::QueuePosition;
use engine::Phase;
use generate::error::ApiError;
use generate::output::position::Position;
use generate::stream_source::{ChoiceLog, StartedGeneration, StreamMeta, StreamSource};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stream::{End, Owner, StreamId, Tap};
use tokio::sync::watch;
use wire::clock;
use wire::cursor::{Cursor, TerminalMarker};
use wire::framing::Framing;
use wire::openai::chat_encoder::ReasoningField;
use wire::protocol::Protocol;

/// The started generation of a stream.
pub struct Started {
    /// Logs and engine requests of the choices.
    pub generation: StartedGeneration,
    /// The program that the stream is a run of, if there is one.
    pub program: Option<Arc<RunControl>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamStage {
    Waiting,
    Cancelled,
    Settled,
}

/// The registry's record of a stream.
pub struct StreamRecord {
    source: Arc<StreamSource>,
    terms: StreamTerms,
    pub(super) stage: watch::Sender<StreamStage>,
    program: OnceLock<Arc<RunControl>>,
    /// The first failed end, which all readers report, whichever choice they read first.
    broken: OnceLock<End>,
    /// Readers that are present, and the notes on the end.
    pub(crate) attendance: Attendance,
    /// The subscriber whose reading returns credit.
    pub(crate) credit_owner: CreditOwner,
    pub(super) paused: AtomicBool,
    /// Position in the admission queue, if the request had to wait.
    queue_position: OnceLock<QueuePosition>,
    pub(super) origin: StreamOrigin,
    /// Processes that have taken the stream over, one after another.
    pub(crate) recoveries: u64,
    /// Whether another arithmetic computes the continuation than the answered tokens.
    pub(super) is_recomputed: AtomicBool,
    /// Whether the stream continues at another gateway.
    pub(super) has_left: AtomicBool,
    pub(super) waiting_readers: AtomicUsize,
    pub(crate) transitions: Arc<Transitions>,
    pub(crate) control_history: ControlHistory,
    /// Made when it is first asked for: few streams are steered.
    steering: OnceLock<Box<Steering>>,
    /// The records in the journal, if the stream is recorded.
    durable: Option<Box<DurableStream>>,
    /// Set at the opening of a stream whose answer is stored on the disk.
    storage: OnceLock<AnswerStorage>,
    /// The connection of the client that reads the stream to the end.
    pub(crate) connection: ConnectionHandle,
    pub(super) image_progress: ImageProgress,
}

impl StreamRecord {
    /// A stream that waits, which so many processes have taken over.
    pub(crate) fn new(
        meta: StreamMeta,
        terms: StreamTerms,
        durable: Option<DurableStream>,
        (origin, recoveries): (StreamOrigin, u64),
        transitions: Arc<Transitions>,
    ) -> Self {
        Self {
            source: Arc::new(StreamSource::new(meta)),
            terms,
            stage: watch::Sender::new(StreamStage::Waiting),
            program: OnceLock::new(),
            broken: OnceLock::new(),
            attendance: Attendance::default(),
            credit_owner: CreditOwner::default(),
            paused: AtomicBool::new(false),
            queue_position: OnceLock::new(),
            origin,
            recoveries,
            is_recomputed: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            waiting_readers: AtomicUsize::new(0),
            transitions,
            control_history: ControlHistory::default(),
            steering: OnceLock::new(),
            durable: durable.map(Box::new),
            storage: OnceLock::new(),
            connection: ConnectionHandle::default(),
            image_progress: ImageProgress::default(),
        }
    }

    /// Records the queue position. To be called directly after the opening, if at all.
    pub(crate) fn set_queue_position(&self, position: QueuePosition) {
        let _ = self.queue_position.set(position);
    }

    /// Position in the admission queue; `None` if the request did not have to wait.
    pub fn queue_position(&self) -> Option<&QueuePosition> {
        self.queue_position.get()
    }

    /// Control updates that the engine has accepted.
    pub(crate) fn steering(&self) -> &Steering {
        self.steering.get_or_init(Box::default)
    }

    /// The records of the stream in the journal.
    pub(crate) fn durable(&self) -> Option<&DurableStream> {
        self.durable.as_deref()
    }

    /// The answer will be stored there. To be called directly after the opening, if at all.
    pub(crate) fn set_storage(&self, storage: AnswerStorage) {
        let _ = self.storage.set(storage);
    }

    /// Where the answer is stored after the end.
    pub(crate) fn storage(&self) -> Option<&AnswerStorage> {
        self.storage.get()
    }

    /// The client has read the stream to the end, or has disconnected.
    pub(crate) fn mark_drained(&self) {
        self.connection.mark_drained(self);
    }

    /// Id of the stream.
    pub fn id(&self) -> StreamId {
        self.meta().id
    }

    /// Metadata of the stream.
    pub fn meta(&self) -> &StreamMeta {
        self.source.meta()
    }

    /// The part of the record that encoders and the output pipeline read.
    pub fn source(&self) -> &Arc<StreamSource> {
        &self.source
    }

    /// Options and owner of the stream.
    pub fn terms(&self) -> &StreamTerms {
        &self.terms
    }

    /// The stream has logs and engine requests from now on. To be called once.
    pub(crate) fn set_started(&self, started: Started) {
        let Started {
            generation,
            program,
        } = started;
        if let Some(program) = program {
            let _ = self.program.set(program);
        }
        if let Some(durable) = &self.durable {
            let (logprobs, top_n) = (self.meta().logprobs, self.meta().top_n);
            durable.attach_logs((&generation, self.source.ended_time()), logprobs, top_n);
        }
        if !self.source.settle(Ok(generation)) {
            return;
        }
        // A cancellation before this line is seen here; a later one finds the engine's requests.
        if self.stage.send_replace(StreamStage::Settled) == StreamStage::Cancelled {
            self.cancel();
        }
    }

    /// The stream will never start. Without effect after the start.
    pub(crate) fn set_rejected(&self, error: ApiError) {
        let is_leaving = self.durable().is_some_and(DurableStream::is_leaving);
        let error = if self.has_left() || is_leaving {
            moved_error()
        } else {
            error
        };
        let (how, why) = match error.code {
            "cancelled" => ("cancelled", None),
            code => ("refused", Some(code)),
        };
        if self.source.outcome().is_none()
            && let Some(durable) = &self.durable
        {
            durable.reject(&error);
        }
        if self.source.settle(Err(error)) {
            self.transitions.publish_ended(how, why, clock::now());
            self.stage.send_replace(StreamStage::Settled);
        }
    }

    /// The error of a stream that never starts.
    pub fn rejection(&self) -> Option<&ApiError> {
        self.source.rejected()
    }

    /// The started generation.
    pub fn started(&self) -> Option<&StartedGeneration> {
        self.source.started()
    }

    /// Waits for the start of the generation.
    ///
    /// # Errors
    /// The stream was rejected.
    pub async fn wait_for_start(&self) -> Result<&StartedGeneration, ApiError> {
        let _waiting = self.count_reader();
        self.wait_for_outcome().await
    }

    /// As [`wait_for_start`](Self::wait_for_start), for a task that is no reader.
    pub async fn wait_for_outcome(&self) -> Result<&StartedGeneration, ApiError> {
        let mut stage = self.stage.subscribe();
        let _ = stage.wait_for(|stage| *stage == StreamStage::Settled).await;
        match self.source.outcome() {
            Some(Ok(started)) => Ok(started),
            Some(Err(error)) => Err(error.clone()),
            None => Err(never_started_error()),
        }
    }

    /// A choice ended with a failure: the end that all readers of the stream report.
    pub(crate) fn record_failure(&self, end: End) -> End {
        *self.broken.get_or_init(|| end)
    }

    /// Whether every choice has ended, or none will ever begin.
    pub(crate) fn is_over(&self) -> bool {
        match self.source.outcome() {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(started)) => started.choices.iter().all(|c| c.tokens.end().is_some()),
        }
    }

    /// State of the stream: with several prompts, the furthest state of a request that has not ended.
    pub fn state(&self) -> StreamState {
        if self.is_over() {
            return StreamState::Ended;
        }
        if self.paused.load(Ordering::Relaxed) {
            return StreamState::Paused;
        }
        let Some(started) = self.started() else {
            return StreamState::Queued;
        };
        let any = |phase| started.requests.iter().any(|r| r.progress.phase() == phase);
        match () {
            () if any(Phase::Running) => StreamState::Running,
            () if any(Phase::Prefilling) => StreamState::Prefilling,
            () if any(Phase::Parked) => StreamState::Parked,
            () if any(Phase::Queued) => StreamState::Queued,
            // All requests have ended, and the logs are about to show the ends.
            () => StreamState::Running,
        }
    }

    /// The engine left without reporting ends: the server reports them.
    pub(crate) fn report_lost(&self) {
        let mut choices = self.started().into_iter().flat_map(|s| &s.choices);
        if choices.any(|choice| choice.tokens.end() == Some(End::Lost)) {
            let (how, detail) = end_name(End::Lost);
            self.transitions.publish_ended(how, detail, clock::now());
        }
    }

    /// Whether the stream can be read again after the end.
    pub(crate) fn is_kept(&self) -> bool {
        self.terms.resumable || self.credit_owner.was_revoked()
    }

    /// Whether a client can have received these positions; `None` while the stream waits.
    pub(crate) fn has_reached(&self, positions: &[Position]) -> Option<bool> {
        let choices = &self.started()?.choices;
        let mut pairs = choices.iter().zip(positions);
        let all = pairs.all(|(log, position)| position.begun() <= log.steps());
        Some(choices.len() == positions.len() && all)
    }

    /// Cursor of a client that has so many tokens of each choice; `None` while the stream waits.
    pub fn cursor_at(&self, tokens: u64) -> Option<Cursor> {
        let position = |log: &ChoiceLog| {
            Position::whole(tokens.saturating_add(log.echo_text.is_some().into()))
        };
        Some(Cursor {
            positions: self.started()?.choices.iter().map(position).collect(),
            terminal: TerminalMarker::None,
        })
    }

    /// Bytes of log segments and of a run's result.
    pub(crate) fn memory_bytes(&self) -> usize {
        let Some(started) = self.started() else {
            return 0;
        };
        let of = |log: &ChoiceLog| log.tokens.bytes() + log.top.as_ref().map_or(0, Tap::bytes);
        let returned = self.program().map_or(0, |run| run.result_bytes());
        started.choices.iter().map(of).sum::<usize>() + returned
    }

    /// The workflow run behind this stream.
    pub fn program(&self) -> Option<&Arc<RunControl>> {
        self.started().and_then(|_| self.program.get())
    }
}

/// Where a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Waits for a permit or for a slot in the batch.
    Queued,
    /// The prompt is being computed.
    Prefilling,
    /// Generating.
    Running,
    /// Waiting for credit or for pages.
    Parked,
    /// Paused by request.
    Paused,
    /// Every choice has ended.
    Ended,
}

impl StreamState {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Prefilling => "prefilling",
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

/// Delivery options and owner of a stream.
pub struct StreamTerms {
    /// Owner of the stream.
    pub owner: Owner,
    /// Wire protocol of the request.
    pub protocol: Protocol,
    /// Framing of the response.
    pub framing: Framing,
    /// Field of chat messages with the reasoning.
    pub reasoning_field: ReasoningField,
    /// The stream continues without a client, and is retained after the end.
    pub resumable: bool,
    /// The stream becomes resumable when the client does not read for too long (`backpressure.policy: detach`).
    pub detachable: bool,
    /// Credit comes from the client's acknowledgements alone.
    pub explicit_acks: bool,
    /// Tokens a choice may be ahead; 0 = no limit.
    pub credit_window: u64,
    /// Tokens that a detached stream may generate beyond the credit window, per choice and once.
    pub detached_tokens: u64,
}

/// Code of the error for a request whose stream continues at another gateway.
pub const STREAM_MOVED: &str = "stream_moved";
/// `Retry-After` of that error.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error for a request whose stream continues at another gateway.
pub fn moved_error() -> ApiError {
    let message = "the stream continues at another gateway: read it again by its id";
    ApiError::capacity(STREAM_MOVED, message, RETRY_AFTER)
}

/// The error of a stream whose request was dropped before the start.
fn never_started_error() -> ApiError {
    let message = "the request was lost before it started, since its model or the server went away; nothing was computed: send \
                   the request again";
    ApiError::ours("lost", message)
}
