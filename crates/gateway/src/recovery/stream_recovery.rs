//! Streams of an earlier process in the registry.

use super::recovered_state::{self, RecoveredState, RecoveryContext, WallTime, state_of};
use crate::ended::EndedStream;
use crate::handles::Gateway;
use crate::keys::Keys;
use crate::metrics::{RecoveryMetrics, RecoveryOutcome};
use crate::records::{ControlState, RecordedPrompts, StreamDescription, outcome};
use crate::streams::{DurableStream, RecoveredHandle, StreamOrigin, StreamRun};
use generate::error::ApiError;
use journal::RecoveredStream;
use std::sync::Arc;
use std::time::Instant;
use stream::{Owner, StreamId};
use wire::clock;
use wire::shared::job_outcome::JobId;

/// The recovery of one stream, which is registered and waits for the model.
pub(crate) struct StreamRecovery {
    pub(crate) run: StreamRun,
    pub(crate) description: StreamDescription,
    pub(crate) records: Arc<RecoveredStream>,
    pub(crate) control: ControlState,
    pub(crate) state: RecoveredState,
    pub(crate) deadline: Option<Instant>,
    /// Place in the order of opening.
    pub(crate) place: usize,
}

impl StreamRecovery {
    /// Whether another gateway owned the stream, and had not stored all ends.
    pub(crate) fn is_taken_over(&self) -> bool {
        let is_ended = matches!(self.state, RecoveredState::Ended(_));
        self.run.record().is_taken_over() && !is_ended
    }

    /// Tokens to be computed before the next token: of the prompts, and of unfinished answers.
    pub(crate) fn tokens_to_compute(&self) -> usize {
        let RecordedPrompts::Prepared(prompts) = &self.description.prompts else {
            return 0;
        };
        let prompts = prompts.iter().map(|prompt| prompt.ids.len());
        let open = self.records.choices.iter();
        let open = open.filter(|choice| choice.end.is_none());
        prompts.sum::<usize>() + open.map(|choice| choice.ids.len()).sum::<usize>()
    }
}

/// Everything that a journal contained, sorted by what becomes of the streams.
#[derive(Default)]
pub(crate) struct RecoveredStreams {
    pub(crate) streams: Vec<StreamRecovery>,
    /// Streams with a description that this version cannot read. The records stay in the journal, for a version that
    /// can.
    pub(crate) unreadable: Vec<DurableStream>,
    /// Streams past their retention.
    pub(crate) expired: u64,
    /// Streams that were rejected before their start, or are lost.
    pub(crate) rejected: u64,
}

impl RecoveredStreams {
    /// Counts the streams for metrics.
    pub(crate) fn count(&self, metrics: &RecoveryMetrics) {
        let count = |is: fn(&RecoveredState) -> bool| {
            let streams = self.streams.iter().filter(|stream| is(&stream.state));
            streams.count() as u64
        };
        let ended = count(|state| matches!(state, RecoveredState::Ended(_)));
        let rejected = count(|state| matches!(state, RecoveredState::Rejected(_)));
        let all = self.streams.len() as u64;
        metrics.count_streams(RecoveryOutcome::Open, all - ended - rejected);
        metrics.count_streams(RecoveryOutcome::Ended, ended);
        metrics.count_streams(RecoveryOutcome::Rejected, self.rejected + rejected);
        metrics.count_streams(RecoveryOutcome::Expired, self.expired);
        let unreadable = self.unreadable.len() as u64;
        metrics.count_streams(RecoveryOutcome::Unreadable, unreadable);
        for stream in &self.streams {
            let tokens = recovered_state::token_count(&stream.records.choices);
            metrics.tokens.add(tokens);
        }
    }
}

/// Registers all streams of this origin, in the order of their opening. `is_sealed`: the last process shut down in order.
pub(crate) fn register_streams(
    gateway: &Gateway,
    keys: &Keys,
    handles: Vec<RecoveredHandle>,
    (origin, is_sealed): (StreamOrigin, bool),
) -> RecoveredStreams {
    let mut recovered = RecoveredStreams::default();
    let wall = WallTime::now();
    let context = RecoveryContext {
        is_sealed,
        now_unix_us: wall.now_unix_us(),
        retention: gateway.generations.limits.now().streams.retention,
    };
    let mut described = Vec::with_capacity(handles.len());
    for handle in handles {
        match read_description(&handle.records) {
            Ok(description) => described.push((description, handle)),
            Err(why) => {
                let id = StreamId::from_bits(handle.records.id);
                tracing::error!(stream = %id, why, "a recovered stream cannot be read");
                recovered.unreadable.push(handle.durable);
            }
        }
    }
    described.sort_by_key(|(description, handle)| (description.opened_unix_us, handle.records.id));
    for (place, (description, handle)) in described.into_iter().enumerate() {
        let control = handle.records.sampling.as_deref();
        let control = control.map(ControlState::decode).transpose();
        let mut state = state_of(&handle.records, &description, context);
        if control.is_err() {
            // Without the control updates the answer would continue with other parameters.
            state = state.without_continuation();
        }
        let control = control.ok().flatten().unwrap_or_default();
        let registration = Registration {
            gateway,
            keys,
            wall,
            place,
            origin,
        };
        registration.add_stream(description, handle, (state, control), &mut recovered);
    }
    gateway.generations.streams.registry().sweep(clock::now());
    recovered
}

fn read_description(recovered: &RecoveredStream) -> Result<StreamDescription, String> {
    let described = StreamDescription::decode(&recovered.description);
    let mut description = described.map_err(|why| why.to_string())?;
    if let Some(prepared) = &recovered.prepared {
        let set = description.set_prepared(prepared);
        set.map_err(|why| why.to_string())?;
    }
    Ok(description)
}

/// Arguments of the registration of one stream, beside the stream.
#[derive(Clone, Copy)]
struct Registration<'a> {
    gateway: &'a Gateway,
    keys: &'a Keys,
    wall: WallTime,
    place: usize,
    origin: StreamOrigin,
}

impl Registration<'_> {
    fn add_stream(
        self,
        description: StreamDescription,
        handle: RecoveredHandle,
        (state, control): (RecoveredState, ControlState),
        recovered: &mut RecoveredStreams,
    ) {
        let RecoveredHandle { records, durable } = handle;
        let is_open = matches!(
            state,
            RecoveredState::Queued(_) | RecoveredState::Running(_)
        );
        let Some(run) = self.register(&description, &records, durable, is_open) else {
            return;
        };
        if !self.is_undecided() {
            run.record().publish_recovered();
        }
        let is_expired = matches!(state, RecoveredState::Expired);
        if let Some(note) = description.stored.as_ref().filter(|_| !is_expired) {
            let responses = &self.gateway.responses;
            responses.restore_running(run.record(), note);
        }
        let reports = self.gateway.end_reports();
        let outcome = records.outcome.as_deref().unwrap_or_default();
        run.record().restore_noted_end(outcome::noted_end(outcome));
        if !is_expired {
            reports.watch_recovered(run.record());
        }
        match state {
            RecoveredState::Expired => {
                recovered.expired += 1;
                let ended_at = recovered_state::ended_unix_us(&records);
                let end = || EndedStream::of_recovered(&description, &records, ended_at);
                reports.report_expired(run.record(), end);
                run.record()
                    .restore_rejection(recovered_state::lost_error());
                run.finish_recovered(self.wall.past_instant(ended_at));
            }
            RecoveredState::Rejected(error) if !self.is_undecided() => {
                recovered.rejected += 1;
                run.reject_recovered(error);
            }
            state => {
                let deadline = recovered_state::deadline(&description, self.wall);
                run.record()
                    .restore_control(&control, records.is_paused && is_open);
                recovered.streams.push(StreamRecovery {
                    run,
                    description,
                    control,
                    state,
                    deadline,
                    records,
                    place: self.place,
                });
            }
        }
    }

    /// Whether another gateway may own the stream by now.
    fn is_undecided(self) -> bool {
        self.origin == StreamOrigin::Journal && self.gateway.owners.may_be_replicated()
    }

    /// `None` if this process has a stream of this id already.
    fn register(
        self,
        description: &StreamDescription,
        records: &RecoveredStream,
        durable: DurableStream,
        is_open: bool,
    ) -> Option<StreamRun> {
        let id = StreamId::from_bits(records.id);
        let owner = Owner(description.owner);
        let meta = recovered_state::stream_meta(description, id, self.wall);
        let terms = recovered_state::stream_terms(description);
        let choices = if is_open { meta.choices } else { 0 };
        let recoveries = records.claim.map_or(0, |claim| claim.generation) + 1;
        let origin = (self.origin, recoveries);
        let streams = &self.gateway.generations.streams;
        let registration =
            streams.restore(meta, terms, durable, origin, description.opened_unix_us)?;
        let job_id = description.job_id.as_deref();
        if let Some(job_id) = job_id.and_then(JobId::parse) {
            self.gateway.job_names.restore_name(owner, job_id, id);
        }
        let choices = u32::try_from(choices).unwrap_or(u32::MAX);
        let permit = self.keys.recovered_permit(owner, choices);
        let charged = recovered_state::token_count(&records.choices);
        Some(StreamRun::recovered(registration, permit, charged))
    }
}

/// The error of a stream without its model.
pub(crate) fn model_missing(model: &str) -> ApiError {
    ApiError::ours(
        "model_changed",
        format!("the server was restarted without the stream's model '{model}'"),
    )
}
