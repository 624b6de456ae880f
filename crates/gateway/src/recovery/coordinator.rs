//! Recovered streams of all models, from the registration to the last submission.
//!
//! One task for each model. The task waits for the model, makes ended streams readable, and submits the others one after
//! another. The order ([`next_candidate`]) is evaluated before each submission, because clients come back meanwhile. At most [`COMPUTING_MAX`] streams compute their answered tokens at one time, so that the order matters. New
//! requests for the model are on hold until every stream was submitted.

use super::attempt::{Attempt, Candidate, next_candidate};
use super::continuation::{Continuation, settle_stream, wait_for_news};
use super::ownership::{Claims, continue_when_decided, split_decided};
use super::recovered_state::RecoveredState;
use super::starting_journal::HeldRequests;
use super::stream_recovery::{RecoveredStreams, StreamRecovery, model_missing};
use crate::handles::Gateway;
use crate::models::{ModelEntry, ModelRegistry, ModelState, ReadyModel};
use crate::pending_generation::{Entrance, PendingGeneration, requested_choices};
use crate::records::description::ModelMatch;
use crate::streams::DurableStream;
use admission::AdmissionRequest;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stream::{End, FailCode};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Submitted streams without a new token, of one model.
const COMPUTING_MAX: usize = 8;

/// Registered streams of earlier processes, which wait for their models.
pub struct Recovery {
    held: HeldRequests,
    streams: Vec<StreamRecovery>,
    claims: Claims,
    /// Records for a version that can read them.
    unreadable: Vec<DurableStream>,
}

/// Time between two looks at whether a gateway's first model is known.
const NAMES_LOOK: Duration = Duration::from_millis(50);

/// Streams of one model.
struct ModelStreams {
    entry: Arc<ModelEntry>,
    streams: Vec<StreamRecovery>,
}

impl Recovery {
    pub(crate) fn new(held: HeldRequests, restored: RecoveredStreams, claims: Claims) -> Self {
        Self {
            held,
            streams: restored.streams,
            claims,
            unreadable: restored.unreadable,
        }
    }

    /// Submits all streams; ready when the process ends, or when all are submitted. Dropping the future leaves the
    /// streams to the next process.
    pub async fn run(self) {
        let Gateway {
            generations,
            models,
            ..
        } = &self.held.0;
        let (owned, undecided) = split_decided(self.claims, self.streams).await;
        let late = continue_when_decided(&self.held.0, undecided);
        let groups = group_streams(models, owned).await;
        models.hold_only(groups.iter().map(|group| group.entry.weights.clone()));
        let mut tasks = JoinSet::new();
        for group in groups {
            tasks.spawn(ModelRecovery(self.held.0.clone()).run(group));
        }
        let submitted = async {
            while tasks.join_next().await.is_some() {}
            generations.metrics.recovery.note_submitted();
            tracing::info!("recovered streams are submitted");
        };
        tokio::join!(submitted, late);
        if !self.unreadable.is_empty() {
            std::future::pending::<()>().await;
        }
    }
}

/// Submits streams that were taken over. New requests for the model are not on hold meanwhile.
pub(crate) async fn continue_streams(gateway: &Gateway, streams: Vec<StreamRecovery>) {
    for group in group_streams(&gateway.models, streams).await {
        ModelRecovery(gateway.clone()).continue_group(group).await;
    }
}

/// Waits until names are those of models, and not of files that the model of the engines has, too.
async fn wait_for_names(models: &ModelRegistry) {
    let is_started = || models.library().is_none_or(|library| library.is_started());
    while !is_started() {
        sleep(NAMES_LOOK).await;
    }
}

/// Streams by the entry of their model. A model that is not found by name may be the first one under another name: the
/// contents are compared later.
async fn group_streams(
    models: &Arc<ModelRegistry>,
    streams: Vec<StreamRecovery>,
) -> Vec<ModelStreams> {
    if !streams.is_empty() {
        wait_for_names(models).await;
    }
    let mut by_name: BTreeMap<String, Vec<StreamRecovery>> = BTreeMap::new();
    for stream in streams {
        let name = stream.description.model_key.clone();
        by_name.entry(name).or_default().push(stream);
    }
    let mut groups: Vec<ModelStreams> = Vec::new();
    for (name, streams) in by_name {
        let found = models.look_up(Some(&name)).await;
        let entry = found.map_or_else(|_| Arc::clone(models.first_entry()), |found| found.entry);
        let known = groups
            .iter_mut()
            .find(|group| group.entry.weights == entry.weights);
        match known {
            Some(group) => group.streams.extend(streams),
            None => groups.push(ModelStreams { entry, streams }),
        }
    }
    groups
}

/// The recovery of one model's streams.
#[derive(Clone)]
struct ModelRecovery(Gateway);

/// Ends the hold of a model's new requests, however the recovery ends.
struct HeldModel<'a>(&'a ModelRegistry, &'a ModelEntry);

impl Drop for HeldModel<'_> {
    fn drop(&mut self) {
        self.0.release_hold(self.1);
    }
}

impl ModelRecovery {
    async fn run(self, group: ModelStreams) {
        let models = Arc::clone(&self.0.models);
        let entry = Arc::clone(&group.entry);
        let _held = HeldModel(&models, &entry);
        self.continue_group(group).await;
    }

    async fn continue_group(self, group: ModelStreams) {
        let ModelStreams { entry, streams } = group;
        let wait = ModelWait::new(&entry);
        let Some(serving) = wait.ready_model(&self.0.models).await else {
            return self.reject_all(&entry, streams);
        };
        if streams.iter().any(StreamRecovery::is_taken_over) {
            wait.engine_found(&serving).await;
        }
        let (mut ended, mut running, mut queued) = (Vec::new(), Vec::new(), Vec::new());
        let streams = streams.into_iter();
        for stream in streams.filter_map(|stream| with_model(stream, &serving)) {
            match stream.state {
                RecoveredState::Ended(end) => ended.push((stream, end)),
                RecoveredState::Running(attempt) => running.push((stream, attempt)),
                RecoveredState::Queued(attempt) => queued.push((stream, attempt)),
                // Those have their errors.
                RecoveredState::Expired | RecoveredState::Rejected(_) => {}
            }
        }
        let settle = async {
            for (stream, end) in ended {
                settle_stream(&self.0.generations, &serving, stream, end).await;
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(settle, self.submit_all(&serving, running, queued));
    }

    /// The streams of a model that cannot be loaded. Ended streams stay in the journal for a process with the model.
    fn reject_all(&self, entry: &ModelEntry, streams: Vec<StreamRecovery>) {
        tracing::error!(
            model = entry.id(),
            streams = streams.len(),
            "recovered streams cannot continue: the model could not be loaded"
        );
        for stream in streams {
            reject_without_model(stream);
        }
    }

    async fn submit_all(
        &self,
        serving: &Arc<ReadyModel>,
        mut running: Vec<(StreamRecovery, Attempt)>,
        queued: Vec<(StreamRecovery, Attempt)>,
    ) {
        let (suspects, queued) = queued.into_iter().partition::<Vec<_>, _>(is_alone);
        let mut computing = JoinSet::new();
        let mut queued = Some(queued);
        while let Some(next) = next_candidate(running.iter().map(candidate)) {
            let (stream, attempt) = running.swap_remove(next);
            let stream = (stream, attempt);
            let is_alone = is_alone(&stream);
            if is_alone {
                // Streams that run alone are the last ones; the others have their places in the queue before.
                self.requeue_all(serving, queued.take());
            }
            let room = if is_alone { 1 } else { COMPUTING_MAX };
            while computing.len() >= room {
                computing.join_next().await;
            }
            let (stream, attempt) = stream;
            match Continuation::new(&self.0.generations, serving, stream, attempt) {
                Ok(continuation) => drop(computing.spawn(continuation.submit(attempt))),
                // Only streams with prompts were running.
                Err(pending) => requeue(*pending, serving),
            }
            if is_alone {
                while computing.join_next().await.is_some() {}
            }
        }
        self.requeue_all(serving, queued);
        // Streams continue without this task.
        computing.detach_all();
        if !suspects.is_empty() {
            let (recovery, serving) = (self.clone(), Arc::clone(serving));
            tokio::spawn(async move { recovery.requeue_suspects(&serving, suspects).await });
        }
    }

    /// Streams with which the process died while they were prepared: one at a time, each until its first token or end.
    async fn requeue_suspects(
        &self,
        serving: &Arc<ReadyModel>,
        suspects: Vec<(StreamRecovery, Attempt)>,
    ) {
        for suspect in suspects {
            let record = Arc::clone(suspect.0.run.record());
            self.requeue_all(serving, Some(vec![suspect]));
            if record.wait_for_start().await.is_ok() {
                wait_for_news(&record).await;
            }
        }
    }

    /// Streams that waited for a permit wait again, in the order of their opening.
    fn requeue_all(
        &self,
        serving: &Arc<ReadyModel>,
        queued: Option<Vec<(StreamRecovery, Attempt)>>,
    ) {
        for (stream, attempt) in queued.into_iter().flatten() {
            let Err(pending) = Continuation::new(&self.0.generations, serving, stream, attempt)
            else {
                continue;
            };
            requeue(*pending, serving);
        }
    }
}

fn requeue(pending: PendingGeneration, serving: &ReadyModel) {
    let record = Arc::clone(pending.run.record());
    let estimator = serving.resource_estimator(&pending.handles.limits.now());
    let need = estimator.estimate_bytes(
        pending.body_bytes,
        pending.ask.prompts.len(),
        requested_choices(&pending.ask),
    );
    let request = AdmissionRequest {
        class: pending.class,
        account: pending.run.key().account(),
        need,
        is_recallable: true,
        deadline: pending.deadline,
        who: pending.handles.ids.fingerprint_of(&record.id()),
    };
    let ticket = serving.admission.requeue(request, record.meta().arrived);
    drop(pending.run_in_task(Entrance::Queued(ticket)));
}

fn is_alone((_, attempt): &(StreamRecovery, Attempt)) -> bool {
    matches!(attempt, Attempt::Alone { .. })
}

fn candidate((stream, attempt): &(StreamRecovery, Attempt)) -> Candidate {
    Candidate {
        has_reader: stream.run.record().has_waiting_reader(),
        class: stream.description.priority,
        tokens_to_compute: stream.tokens_to_compute(),
        attempt: *attempt,
        place: stream.place,
    }
}

/// The stream with the state for the loaded model; `None` after a rejection.
fn with_model(mut stream: StreamRecovery, serving: &ReadyModel) -> Option<StreamRecovery> {
    let (recorded, now) = (&stream.description.identity, serving.model.identity_now());
    let matched = ModelMatch::of(recorded, &now);
    if stream.is_taken_over() && !recorded.computes_as(&now) {
        // Clients may have more than was stored, and would get another text after that.
        let id = stream.run.record().id();
        tracing::warn!(stream = %id, "a stream of another gateway ends: engines compute otherwise now");
        stream.state = stream.state.without_continuation();
    }
    let is_queued = matches!(stream.state, RecoveredState::Queued(_));
    if matched == ModelMatch::Other || (matched == ModelMatch::Readable && is_queued) {
        reject_without_model(stream);
        return None;
    }
    match &stream.state {
        RecoveredState::Rejected(error) => {
            let error = error.clone();
            stream.run.reject_stream(&error);
            return None;
        }
        RecoveredState::Ended(_) => {}
        _ if matched == ModelMatch::Readable => {
            stream.state = RecoveredState::Ended(End::Failed(FailCode::ModelChanged));
        }
        RecoveredState::Running(_)
            if matched
                == (ModelMatch::Same {
                    is_recomputed: true,
                }) =>
        {
            stream.run.record().set_recomputed();
        }
        _ => {}
    }
    Some(stream)
}

fn reject_without_model(stream: StreamRecovery) {
    let error = model_missing(&stream.description.model);
    match stream.state {
        RecoveredState::Ended(_) => stream.run.reject_recovered(error),
        _ => stream.run.reject_stream(&error),
    }
}

/// Time between two looks for an engine of another process.
const ENGINE_RETRY: Duration = Duration::from_secs(1);

/// Time between two looks for an engine that computes further tokens.
const ENGINE_LOOK: Duration = Duration::from_millis(50);

/// The streams of a model wait for the model; the drop ends the wait. The model is not unloaded meanwhile.
pub(crate) struct ModelWait<'a>(&'a ModelEntry);

impl<'a> ModelWait<'a> {
    pub(crate) fn new(entry: &'a ModelEntry) -> Self {
        entry.count_waiting(true);
        Self(entry)
    }

    /// The model, after it was loaded: by the start of the server, or because of this call. `None`: the load failed.
    /// The wait has no bound of time, because the streams' clients wait as long as they like.
    pub(crate) async fn ready_model(&self, models: &ModelRegistry) -> Option<Arc<ReadyModel>> {
        let mut states = self.0.watch_state();
        loop {
            let state = states.borrow_and_update().clone();
            match state {
                ModelState::Ready(serving) => return Some(serving),
                // A server without its first model ends, or a request loads the model again.
                ModelState::Failed | ModelState::TooLarge(_) if self.0.weights.is_none() => {}
                ModelState::Failed | ModelState::TooLarge(_) => return None,
                ModelState::NoEngine(_) => {
                    tokio::time::sleep(ENGINE_RETRY).await;
                    models.request_load(self.0);
                    continue;
                }
                ModelState::Unloaded if models.library().is_some() => {
                    models.request_load(self.0);
                }
                ModelState::Unloaded | ModelState::Queued { .. } | ModelState::Loading { .. } => {}
            }
            // The sender lives as long as the entry.
            let _ = states.changed().await;
        }
    }

    /// Waits until an engine is there that computes further tokens, at most as long as requests wait for one.
    async fn engine_found(&self, serving: &ReadyModel) {
        let model = &serving.model;
        let is_absent = || model.engine_absence.as_ref()?();
        while !model.has_engine() && is_absent().is_none() {
            tokio::time::sleep(ENGINE_LOOK).await;
        }
    }
}

impl Drop for ModelWait<'_> {
    fn drop(&mut self) {
        self.0.count_waiting(false);
    }
}
