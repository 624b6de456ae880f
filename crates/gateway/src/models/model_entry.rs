//! The state of one model, and the watchers of that state.
//!
//! A ready model with admission to the model's engine, and models whose new requests wait until the recovered streams of the
//! model are submitted.
//!
//! A model becomes ready on one thread while the hold ends on another. The hold is read before the model is published and
//! again afterwards, and is removed before the published model is looked up: so one of the two sides sees the other.

use super::{LoadProgress, LoadedModel, ModelKeepAlive, ModelRegistry, ServedModel};
use crate::limits::{GatewayLimits, LiveLimits};
use crate::locks::lock;
use admission::{Admission, AdmissionBounds, ResourceEstimator};
use generate::constraint::compiler::ConstraintCompiler;
use generate::error::{ApiError, Blame, ErrorKind};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wire::clock;

/// Where a model is.
#[derive(Clone)]
pub enum ModelState {
    /// Not requested.
    Unloaded,
    /// Requested, and waiting for memory or for earlier loads.
    Queued {
        /// Time of the request.
        since: Instant,
    },
    /// Being loaded.
    Loading {
        /// Begin of loading.
        since: Instant,
        /// Progress of loading.
        progress: LoadProgress,
    },
    /// Ready.
    Ready(Arc<ReadyModel>),
    /// The load failed. The reason is only in the log, because the message may contain paths.
    Failed,
    /// Larger than the memory budget of all models, or than the memory that its device has left; the words are for clients.
    TooLarge(Arc<str>),
    /// No engine of another process computes for the model; the words are for clients.
    NoEngine(Arc<str>),
}

/// Code of the error for models without an engine.
pub(crate) const NO_ENGINE: &str = "no_engine";

impl ModelState {
    /// Name in the API.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Queued { .. } => "queued",
            Self::Loading { .. } => "loading",
            Self::Ready(_) => "ready",
            Self::Failed | Self::TooLarge(_) => "failed",
            Self::NoEngine(_) => NO_ENGINE,
        }
    }

    /// When the model may be ready, if the model is expected to become ready.
    pub fn retry_after(&self, unknown: Duration) -> Option<Duration> {
        match self {
            Self::Loading { since, progress } => {
                let passed = clock::now().saturating_duration_since(*since);
                Some(progress.time_left(passed, unknown))
            }
            Self::Unloaded | Self::Queued { .. } | Self::NoEngine(_) => Some(unknown),
            Self::Ready(_) | Self::Failed | Self::TooLarge(_) => None,
        }
    }
}

/// The server's record of one model. Watching the state is telemetry: a late watcher sees the newest state.
pub struct ModelEntry {
    /// The primary name, or what stands for it until the model is known.
    id: String,
    /// The primary name of a first model that was not known at the start.
    found_id: OnceLock<String>,
    /// Source of the weights; `None`: the model that the server was started with.
    pub weights: Option<String>,
    /// Time of the name, in seconds since the Unix epoch; a loaded model has a separate creation time.
    pub(crate) created_unix_s: i64,
    state: watch::Sender<ModelState>,
    stay: Mutex<Residency>,
    /// Requests that wait for the model.
    waiting: AtomicUsize,
    limits: Arc<LiveLimits>,
}

/// How long the model stays in memory, and why.
struct Residency {
    /// Keep-alive of the last request that set one since the model was unloaded.
    keep: Option<ModelKeepAlive>,
    /// Time of the last use.
    last_used: Instant,
    /// Memory of the loaded model.
    held: Option<LoadedState>,
}

/// Memory of a loaded model.
struct LoadedState {
    bytes: u64,
    close: Box<dyn FnOnce() + Send>,
}

/// A model that takes no further requests and still has memory.
pub(crate) struct UnloadingModel {
    pub(crate) bytes: u64,
    serving: Arc<ReadyModel>,
    close: Box<dyn FnOnce() + Send>,
}

impl UnloadingModel {
    /// Ends the engine and waits for the end of the engine's thread; may block.
    pub(crate) fn close(self, limits: &GatewayLimits) {
        self.serving.close_admission(limits);
        drop(self.serving);
        (self.close)();
    }
}

impl ModelEntry {
    /// A name and nothing yet.
    pub(crate) fn new(id: String, weights: Option<String>, limits: Arc<LiveLimits>) -> Self {
        Self {
            id,
            found_id: OnceLock::new(),
            weights,
            created_unix_s: clock::unix_s(),
            state: watch::Sender::new(ModelState::Unloaded),
            stay: Mutex::new(Residency {
                keep: None,
                last_used: clock::now(),
                held: None,
            }),
            waiting: AtomicUsize::new(0),
            limits,
        }
    }

    /// The primary name.
    pub fn id(&self) -> &str {
        self.found_id.get().unwrap_or(&self.id)
    }

    /// The name of the model that was loaded, where it was not known at the start.
    pub(crate) fn set_found_id(&self, id: &str) {
        if id != self.id {
            // A model keeps its name when loaded again.
            let _ = self.found_id.set(id.to_owned());
        }
    }

    /// A request begins (or, with `false`, ends) to wait for the model: the model is not unloaded while a request
    /// waits.
    pub(crate) fn count_waiting(&self, begins: bool) {
        if begins {
            self.waiting.fetch_add(1, Ordering::SeqCst)
        } else {
            self.waiting.fetch_sub(1, Ordering::SeqCst)
        };
    }

    /// State of the model.
    pub fn state(&self) -> ModelState {
        self.state.borrow().clone()
    }

    /// To wait for a change.
    pub fn watch_state(&self) -> watch::Receiver<ModelState> {
        self.state.subscribe()
    }

    /// The model, if ready.
    pub fn ready_model(&self) -> Option<Arc<ReadyModel>> {
        match &*self.state.borrow() {
            ModelState::Ready(serving) => Some(Arc::clone(serving)),
            _ => None,
        }
    }

    /// A lease for a request. The model stays loaded while the lease exists.
    ///
    /// # Errors
    /// The model is not ready: the error has the loading progress and `Retry-After`.
    pub fn expect_ready(&self) -> Result<Arc<ReadyModel>, ApiError> {
        let state = self.state();
        let capacity = |code, words: String| {
            let unknown = self.limits.now().retry_after;
            let wait = state.retry_after(unknown).unwrap_or(unknown);
            Err(ApiError::capacity(code, words, wait))
        };
        match &state {
            ModelState::Ready(serving) => {
                lock(&self.stay).last_used = clock::now();
                let absence = serving.model.engine_absence.as_ref();
                match absence.and_then(|absence| absence()) {
                    None => Ok(Arc::clone(serving)),
                    Some(why) => capacity(NO_ENGINE, why),
                }
            }
            ModelState::Loading { progress, .. } => capacity(
                "model_loading",
                format!("the model is being loaded: {}", progress.summary_text()),
            ),
            ModelState::Queued { .. } => capacity(
                "model_loading",
                "the model is queued to be loaded".to_owned(),
            ),
            ModelState::Unloaded => {
                capacity("model_unloaded", "the model is not loaded".to_owned())
            }
            ModelState::NoEngine(why) => capacity(NO_ENGINE, why.to_string()),
            ModelState::Failed => Err(load_failed(
                "the model could not be loaded; the server's log says why",
            )),
            ModelState::TooLarge(why) => Err(load_failed(&**why)),
        }
    }

    /// Keep-alive by the settings or a request. The model that the server was started with stays unless a request
    /// sets a keep-alive.
    pub(crate) fn keep_alive(&self) -> ModelKeepAlive {
        let default = || match self.weights {
            Some(_) => ModelKeepAlive::from(self.limits.now().models.idle),
            None => ModelKeepAlive::Forever,
        };
        lock(&self.stay).keep.unwrap_or_else(default)
    }

    /// Sets the keep-alive.
    pub fn set_keep(&self, keep: ModelKeepAlive) {
        lock(&self.stay).keep = Some(keep);
    }

    /// Sets the keep-alive if it is not shorter than the one that holds.
    pub fn lengthen_keep(&self, keep: ModelKeepAlive) {
        if !keep.is_shorter_than(self.keep_alive()) {
            self.set_keep(keep);
        }
    }

    /// Time of the last use.
    pub(crate) fn last_used(&self) -> Instant {
        lock(&self.stay).last_used
    }

    /// Marks the model as used.
    pub(crate) fn mark_used(&self, now: Instant) {
        lock(&self.stay).last_used = now;
    }

    /// When the model is unloaded without further requests; `None`: never.
    pub fn expires_at(&self) -> Option<Instant> {
        let last = if self.is_idle() {
            self.last_used()
        } else {
            clock::now()
        };
        self.keep_alive().unload_time(last)
    }

    /// Bytes of memory; 0 for a model that cannot be unloaded.
    pub fn memory_bytes(&self) -> u64 {
        lock(&self.stay).held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Whether the model is loaded, may be unloaded, and is not used.
    pub(crate) fn is_idle(&self) -> bool {
        let is_held = lock(&self.stay).held.is_some();
        is_held
            && matches!(&*self.state.borrow(), ModelState::Ready(serving) if self.is_unused(serving))
    }

    /// Marks the model as loaded and ready.
    pub(crate) fn set_loaded(&self, loaded: LoadedModel, serving: ReadyModel) -> Arc<ReadyModel> {
        let mut stay = lock(&self.stay);
        stay.last_used = clock::now();
        stay.held = Some(LoadedState {
            bytes: loaded.bytes,
            close: loaded.close,
        });
        drop(stay);
        self.set_ready(serving)
    }

    /// Sets a model that another owner closes.
    pub(crate) fn set_ready(&self, serving: ReadyModel) -> Arc<ReadyModel> {
        let serving = Arc::new(serving);
        self.set_state(ModelState::Ready(Arc::clone(&serving)));
        serving
    }

    /// Removes an unused model from the entry. Check and removal are one step: a request that needs the model reads
    /// the state under the lock. The keep-alive ends with the residency, as in Ollama: the next load has the default,
    /// else one `keep_alive: 0` would unload the model before clients that do not wait for it, again and again.
    pub(crate) fn begin_unload(&self) -> Option<UnloadingModel> {
        let mut stay = lock(&self.stay);
        if stay.held.is_none() {
            if matches!(*self.state.borrow(), ModelState::Unloaded) {
                stay.keep = None;
            }
            return None;
        }
        let mut left = None;
        self.state.send_if_modified(|state| {
            let ModelState::Ready(serving) = state else {
                return false;
            };
            if !self.is_unused(serving) {
                return false;
            }
            if let ModelState::Ready(serving) = std::mem::replace(state, ModelState::Unloaded) {
                left = Some(serving);
            }
            true
        });
        let (serving, held) = (left?, stay.held.take()?);
        stay.keep = None;
        Some(UnloadingModel {
            bytes: held.bytes,
            serving,
            close: held.close,
        })
    }

    /// The release function at shutdown, even with leases.
    pub(crate) fn take_held(&self) -> Option<Box<dyn FnOnce() + Send>> {
        lock(&self.stay).held.take().map(|held| held.close)
    }

    /// Queues an unloaded model: true if the state changed.
    pub(crate) fn queue_load(&self, since: Instant) -> bool {
        self.state.send_if_modified(|state| {
            let waits = matches!(
                state,
                ModelState::Unloaded
                    | ModelState::Failed
                    | ModelState::TooLarge(_)
                    | ModelState::NoEngine(_)
            );
            if waits {
                *state = ModelState::Queued { since };
            }
            waits
        })
    }

    pub(crate) fn set_state(&self, state: ModelState) {
        self.state.send_replace(state);
    }

    /// Reports progress; ignored unless the model is loading.
    pub(crate) fn set_progress(&self, new: LoadProgress) {
        self.state.send_if_modified(|state| match state {
            ModelState::Loading { progress, .. } if *progress != new => {
                *progress = new;
                true
            }
            _ => false,
        });
    }

    /// True if no request uses the model: a request holds the model until the permit exists, and the permit does so
    /// while the engine works.
    fn is_unused(&self, serving: &Arc<ReadyModel>) -> bool {
        let stats = serving.model.handle.engine.stats();
        let sequences = stats.queued() + stats.running() + stats.parked() + stats.waiting();
        let waiting = self.waiting.load(Ordering::SeqCst);
        Arc::strong_count(serving) == 1
            && waiting == 0
            && sequences + stats.paused() == 0
            && serving.admission.is_empty()
    }
}

fn load_failed(words: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, Blame::Ours, "model_failed", words)
}

/// A ready model, with the state that depends on the model's sizes.
pub struct ReadyModel {
    /// The loaded model.
    pub model: Arc<ServedModel>,
    /// Admission to the model's slots.
    pub admission: Admission,
    /// Compiles output constraints.
    pub(crate) constraints: Arc<ConstraintCompiler>,
}

impl ReadyModel {
    /// No request was admitted yet.
    pub(crate) fn new(model: Arc<ServedModel>, limits: &GatewayLimits) -> Self {
        let bounds = admission_bounds(&model, limits);
        let admission = Admission::to_engine(&model.handle.engine, bounds);
        let constraints = Arc::new(ConstraintCompiler::new(&model.handle));
        Self {
            model,
            admission,
            constraints,
        }
    }

    /// An estimator with the model's sizes.
    pub fn resource_estimator(&self, limits: &GatewayLimits) -> ResourceEstimator {
        resource_estimator(&self.model, limits)
    }

    /// Applies new bounds to waiting and new requests.
    pub(crate) fn set_limits(&self, limits: &GatewayLimits) {
        self.admission
            .set_bounds(admission_bounds(&self.model, limits));
    }

    /// Closes admission, and ends running requests within the drain time.
    pub(crate) fn close_admission(&self, limits: &GatewayLimits) {
        self.admission.close();
        self.model
            .handle
            .engine
            .shutdown(clock::now() + limits.drain);
    }
}

fn resource_estimator(model: &ServedModel, limits: &GatewayLimits) -> ResourceEstimator {
    let dims = model.handle.engine.dims();
    ResourceEstimator {
        page_tokens: dims.page_tokens,
        pages: dims.pages,
        context_max: model.handle.context_max,
        reservation: limits.reservation,
    }
}

fn admission_bounds(model: &ServedModel, limits: &GatewayLimits) -> AdmissionBounds {
    AdmissionBounds {
        adaptive: limits.adaptive_limits,
        queue: limits.queue,
        open_max: limits.open_requests_max,
        seats: model.handle.engine.sequences_max(),
        pages_limit: resource_estimator(model, limits).pages_limit(),
        retry_after: limits.retry_after,
    }
}

/// Source of a model's weights; `None`: the model that the server was started with.
type WeightsKey = Option<String>;

/// Which models are on hold; at first none.
#[derive(Debug, Default)]
pub(crate) struct AdmissionHolds(Mutex<HeldModels>);

#[derive(Debug, Default)]
enum HeldModels {
    #[default]
    None,
    /// Recovered streams are not known yet.
    All,
    /// Models with recovered streams.
    Some(HashSet<WeightsKey>),
}

impl AdmissionHolds {
    fn contains(&self, entry: &ModelEntry) -> bool {
        match &*lock(&self.0) {
            HeldModels::None => false,
            HeldModels::All => true,
            HeldModels::Some(models) => models.contains(&entry.weights),
        }
    }
}

impl ModelRegistry {
    /// Puts every model on hold. To be called before the first model is ready.
    pub(crate) fn hold_all_models(&self) {
        *lock(&self.holds.0) = HeldModels::All;
    }

    /// Ends the hold of all other models.
    pub(crate) fn hold_only(&self, models: impl IntoIterator<Item = WeightsKey>) {
        *lock(&self.holds.0) = HeldModels::Some(models.into_iter().collect());
        for (entry, serving) in self.ready_models() {
            serving.admission.set_hold(self.is_held(&entry));
        }
    }

    /// Ends the hold of one model.
    pub(crate) fn release_hold(&self, entry: &ModelEntry) {
        if let HeldModels::Some(models) = &mut *lock(&self.holds.0) {
            models.remove(&entry.weights);
        }
        if let Some(serving) = entry.ready_model() {
            serving.admission.set_hold(false);
        }
    }

    /// Whether new requests of a model wait.
    pub(crate) fn is_held(&self, entry: &ModelEntry) -> bool {
        self.holds.contains(entry)
    }
}
