//! Streams of an earlier process in the registry.

use super::recovered_state::{self, PlanContext, StreamPlan, plan_of};
use super::recovered_values::{self, WallTime};
use crate::ended::EndedStream;
use crate::handles::Gateway;
use crate::keys::Keys;
use crate::metrics::{RecoveryMetrics, RecoveryOutcome};
use crate::records::{ControlState, RecordedPrompts, StreamDescription, outcome};
use crate::streams::{AdoptedStream, DurableStream, RecoveryNote, StreamRun};
use generate::error::ApiError;
use journal::RecoveredStream;
use std::sync::Arc;
use std::time::Instant;
use stream::{Owner, StreamId};
use wire::clock;
use wire::shared::job_id::JobId;

/// A registered stream that waits for the model.
pub(crate) struct RestoredStream {
    pub(crate) run: StreamRun,
    pub(crate) description: StreamDescription,
    pub(crate) recovered: Arc<RecoveredStream>,
    pub(crate) control: ControlState,
    pub(crate) plan: StreamPlan,
    pub(crate) deadline: Option<Instant>,
    /// Place in the order of opening.
    pub(crate) place: usize,
}

impl RestoredStream {
    /// Whether another gateway owned the stream, and had not stored all ends.
    pub(crate) fn is_taken_over(&self) -> bool {
        let is_ended = matches!(self.plan, StreamPlan::Ended(_));
        self.run.record().is_taken_over() && !is_ended
    }

    /// Tokens to be computed before the next token: of the prompts, and of unfinished answers.
    pub(crate) fn tokens_to_compute(&self) -> usize {
        let RecordedPrompts::Prepared(prompts) = &self.description.prompts else {
            return 0;
        };
        let prompts = prompts.iter().map(|prompt| prompt.ids.len());
        let open = self.recovered.choices.iter();
        let open = open.filter(|choice| choice.end.is_none());
        prompts.sum::<usize>() + open.map(|choice| choice.ids.len()).sum::<usize>()
    }
}

/// Everything that a journal contained, sorted by what becomes of the streams.
#[derive(Default)]
pub(crate) struct RestoredStreams {
    pub(crate) streams: Vec<RestoredStream>,
    /// Streams with a description that this version cannot read. The records stay in the journal, for a version that
    /// can.
    pub(crate) unreadable: Vec<DurableStream>,
    /// Streams past their retention.
    pub(crate) expired: u64,
    /// Streams that were rejected before their start, or are lost.
    pub(crate) rejected: u64,
}

impl RestoredStreams {
    /// Counts the streams for metrics.
    pub(crate) fn count(&self, metrics: &RecoveryMetrics) {
        let count = |is: fn(&StreamPlan) -> bool| {
            let streams = self.streams.iter().filter(|stream| is(&stream.plan));
            streams.count() as u64
        };
        let ended = count(|plan| matches!(plan, StreamPlan::Ended(_)));
        let rejected = count(|plan| matches!(plan, StreamPlan::Rejected(_)));
        let all = self.streams.len() as u64;
        metrics.count_streams(RecoveryOutcome::Continued, all - ended - rejected);
        metrics.count_streams(RecoveryOutcome::Ended, ended);
        metrics.count_streams(RecoveryOutcome::Rejected, self.rejected + rejected);
        metrics.count_streams(RecoveryOutcome::Expired, self.expired);
        let unreadable = self.unreadable.len() as u64;
        metrics.count_streams(RecoveryOutcome::Unreadable, unreadable);
        for stream in &self.streams {
            let tokens = recovered_values::token_count(&stream.recovered.choices);
            metrics.tokens.add(tokens);
        }
    }
}

/// Where the records of streams come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordsOrigin {
    /// The journal of this process, which has everything that clients have. `is_sealed`: the last process shut down in
    /// order.
    Journal { is_sealed: bool },
    /// JetStream, behind the gateway that is gone.
    OtherGateway,
}

/// A stream with its decoded description.
struct DescribedStream {
    description: StreamDescription,
    adopted: AdoptedStream,
}

/// Registers all streams, in the order of their opening.
pub(crate) fn restore_streams(
    gateway: &Gateway,
    keys: &Keys,
    adopted: Vec<AdoptedStream>,
    origin: RecordsOrigin,
) -> RestoredStreams {
    let mut restored = RestoredStreams::default();
    let wall = WallTime::now();
    let context = PlanContext {
        is_sealed: origin != RecordsOrigin::Journal { is_sealed: false },
        now_unix_us: wall.now_unix_us(),
        retention: gateway.generations.limits.now().streams.retention,
    };
    let mut described = Vec::with_capacity(adopted.len());
    for adopted in adopted {
        match read_description(&adopted.recovered) {
            Ok(description) => described.push(DescribedStream {
                description,
                adopted,
            }),
            Err(why) => {
                let id = StreamId::from_bits(adopted.recovered.id);
                tracing::error!(stream = %id, why, "a recovered stream cannot be read");
                restored.unreadable.push(adopted.durable);
            }
        }
    }
    described.sort_by_key(|one| (one.description.opened_unix_us, one.adopted.recovered.id));
    for (place, one) in described.into_iter().enumerate() {
        let control = one.adopted.recovered.sampling.as_deref();
        let control = control.map(ControlState::decode).transpose();
        let plan = plan_of(&one.adopted.recovered, &one.description, context);
        let plan = match control {
            // Without the control updates the answer would continue with other parameters.
            Err(_) => plan.without_continuation(),
            Ok(_) => plan,
        };
        let control = control.ok().flatten().unwrap_or_default();
        let registration = Registration {
            gateway,
            keys,
            wall,
            place,
            origin,
        };
        registration.restore_stream(one, (plan, control), &mut restored);
    }
    gateway.generations.streams.registry().sweep(clock::now());
    restored
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
    origin: RecordsOrigin,
}

impl Registration<'_> {
    fn restore_stream(
        self,
        one: DescribedStream,
        (plan, control): (StreamPlan, ControlState),
        restored: &mut RestoredStreams,
    ) {
        let DescribedStream {
            description,
            adopted: AdoptedStream { recovered, durable },
        } = one;
        let Some(run) = self.register(&description, &recovered, durable, &plan) else {
            return;
        };
        let is_expired = matches!(plan, StreamPlan::Expired);
        if let Some(note) = description.stored.as_ref().filter(|_| !is_expired) {
            let responses = &self.gateway.responses;
            responses.restore_running(run.record(), note);
        }
        let reports = self.gateway.end_reports();
        let outcome = recovered.outcome.as_deref().unwrap_or_default();
        run.record().restore_noted_end(outcome::noted_end(outcome));
        if !is_expired {
            reports.watch_recovered(run.record());
        }
        match plan {
            StreamPlan::Expired => {
                restored.expired += 1;
                let ended_at = recovered_state::ended_unix_us(&recovered);
                let end = || EndedStream::of_recovered(&description, &recovered, ended_at);
                reports.report_expired(run.record(), end);
                run.record()
                    .restore_rejection(recovered_state::lost_error());
                run.finish_recovered(self.wall.past_instant(ended_at));
            }
            StreamPlan::Rejected(error) if !self.is_undecided() => {
                restored.rejected += 1;
                run.reject_recovered(error);
            }
            plan => {
                let deadline = recovered_values::deadline(&description, self.wall);
                run.record().restore_control(&control);
                restored.streams.push(RestoredStream {
                    run,
                    description,
                    control,
                    plan,
                    deadline,
                    recovered,
                    place: self.place,
                });
            }
        }
    }

    /// Whether another gateway may own the stream by now.
    fn is_undecided(self) -> bool {
        self.origin != RecordsOrigin::OtherGateway && self.gateway.owners.may_be_replicated()
    }

    /// `None` if this process has a stream of this id already.
    fn register(
        self,
        description: &StreamDescription,
        recovered: &RecoveredStream,
        durable: DurableStream,
        plan: &StreamPlan,
    ) -> Option<StreamRun> {
        let id = StreamId::from_bits(recovered.id);
        let owner = Owner(description.owner);
        let meta = recovered_values::stream_meta(description, id, self.wall);
        let terms = recovered_values::stream_terms(description);
        let is_open = matches!(plan, StreamPlan::Queued(_) | StreamPlan::Continued(_));
        let choices = if is_open { meta.choices } else { 0 };
        let note = RecoveryNote {
            recoveries: recovered.claim.map_or(0, |claim| claim.generation) + 1,
            is_paused: recovered.is_paused && is_open,
            is_claimed: self.origin == RecordsOrigin::OtherGateway,
            is_undecided: self.is_undecided(),
        };
        let streams = &self.gateway.generations.streams;
        let registration = streams.restore(
            meta,
            terms,
            Some(durable),
            (note, description.opened_unix_us),
            clock::now(),
        )?;
        let job_id = description.job_id.as_deref();
        if let Some(job_id) = job_id.and_then(JobId::parse) {
            self.gateway.job_names.restore_name(owner, job_id, id);
        }
        let choices = u32::try_from(choices).unwrap_or(u32::MAX);
        let permit = self.keys.recovered_permit(owner, choices);
        let charged = recovered_values::token_count(&recovered.choices);
        Some(StreamRun::restored(registration, permit, charged))
    }
}

/// The error of a stream without its model.
pub(crate) fn model_missing(model: &str) -> ApiError {
    ApiError::ours(
        "model_changed",
        format!("the server was restarted without the stream's model '{model}'"),
    )
}
