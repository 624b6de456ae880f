//! Name -> model, of all models this server may answer for.

use super::model_entry::AdmissionHolds;
use super::nested_waits::NestedWaits;
use super::resolved_model::NameCache;
use super::{DerivedModel, Library, Loading, ModelEntry, ModelState, ReadyModel};
use crate::limits::{GatewayLimits, LiveLimits};
use crate::locks::{read, write};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use tokio::sync::{Notify, watch};
use wire::clock;

/// Entries beside the first; entries of unloaded models are removed first.
pub(crate) const ENTRIES_MAX: usize = 1024;

/// All models of this server. The first is the model that the server was started with, and the model of a request
/// without a name; the others come from the model store.
pub struct ModelRegistry {
    first: Arc<ModelEntry>,
    /// Entries by the source of their weights.
    others: RwLock<BTreeMap<String, Arc<ModelEntry>>>,
    pub(crate) names: NameCache,
    library: OnceLock<Arc<dyn Library>>,
    /// Defaults of requests for the first model.
    first_defaults: OnceLock<Arc<DerivedModel>>,
    limits: Arc<LiveLimits>,
    pub(crate) holds: AdmissionHolds,
    /// Shutdown has begun: a model that becomes ready now is closed.
    closed: watch::Sender<bool>,
    /// The first model was ready once: if unloaded now, a request loads the model again.
    started: AtomicBool,
    /// Wakes the loader for a new decision.
    pub(crate) news: Notify,
    /// Bytes of models that are being unloaded.
    pub(crate) leaving_bytes: AtomicU64,
    /// Requests that wait for models.
    pub waiting: AtomicUsize,
    /// Those that keep another model meanwhile.
    pub(crate) nested_waits: NestedWaits,
    /// Models loaded since the start.
    pub loads: AtomicU64,
    /// Models unloaded since the start.
    pub unloads: AtomicU64,
}

impl ModelRegistry {
    /// A first name without a model.
    pub fn new(first: String, limits: Arc<LiveLimits>) -> Self {
        Self {
            first: Arc::new(ModelEntry::new(first, None, Arc::clone(&limits))),
            others: RwLock::default(),
            names: NameCache::default(),
            library: OnceLock::new(),
            first_defaults: OnceLock::new(),
            limits,
            holds: AdmissionHolds::default(),
            closed: watch::Sender::new(false),
            started: AtomicBool::new(false),
            news: Notify::new(),
            leaving_bytes: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            nested_waits: NestedWaits::default(),
            loads: AtomicU64::new(0),
            unloads: AtomicU64::new(0),
        }
    }

    /// From now on there are these beside the first. Only the first call counts.
    pub fn set_library(&self, library: Arc<dyn Library>) {
        let _ = self.library.set(library);
        self.set_first_defaults();
    }

    fn set_first_defaults(&self) {
        let defaults = self
            .library()
            .and_then(|library| library.started_defaults());
        if let Some(defaults) = defaults {
            let _ = self.first_defaults.set(defaults);
        }
    }

    /// The first model is this one: a server may be started without the name of a model.
    pub(crate) fn find_first(&self, id: &str) {
        self.first.set_found_id(id);
        self.set_first_defaults();
        self.names.clear_names();
    }

    /// Defaults of requests for the first model, if the operator set some.
    pub(crate) fn first_defaults(&self) -> Option<Arc<DerivedModel>> {
        self.first_defaults.get().cloned()
    }

    /// The model store of other models.
    pub fn library(&self) -> Option<&Arc<dyn Library>> {
        self.library.get()
    }

    /// The one that is meant where none is named.
    pub fn first_entry(&self) -> &Arc<ModelEntry> {
        &self.first
    }

    /// All entries, the first model first.
    pub(crate) fn entries(&self) -> Vec<Arc<ModelEntry>> {
        let others = read(&self.others);
        let first = std::iter::once(&self.first);
        first.chain(others.values()).cloned().collect()
    }

    /// The entry of these weights; a new entry gets `name`.
    pub(crate) fn entry(&self, weights: Option<&str>, name: &str) -> Arc<ModelEntry> {
        let Some(weights) = weights else {
            return Arc::clone(&self.first);
        };
        let mut others = write(&self.others);
        if let Some(entry) = others.get(weights) {
            return Arc::clone(entry);
        }
        if others.len() >= ENTRIES_MAX {
            others.retain(|_, entry| {
                !matches!(
                    entry.state(),
                    ModelState::Unloaded | ModelState::Failed | ModelState::NoEngine(_)
                )
            });
        }
        let entry = ModelEntry::new(
            name.to_owned(),
            Some(weights.to_owned()),
            Arc::clone(&self.limits),
        );
        let entry = Arc::new(entry);
        others.insert(weights.to_owned(), Arc::clone(&entry));
        entry
    }

    /// The entry of these weights, if one exists.
    pub(crate) fn known_entry(&self, weights: Option<&str>) -> Option<Arc<ModelEntry>> {
        let Some(weights) = weights else {
            return Some(Arc::clone(&self.first));
        };
        let others = read(&self.others);
        others.get(weights).cloned()
    }

    /// All ready models.
    pub fn ready_models(&self) -> impl Iterator<Item = (Arc<ModelEntry>, Arc<ReadyModel>)> {
        let slots = self.entries().into_iter();
        slots.filter_map(|entry| entry.ready_model().map(|serving| (entry, serving)))
    }

    /// Whether a request with images may find a model that takes them: a ready one, or one that is not loaded yet.
    pub fn may_see_images(&self) -> bool {
        let sees = |entry: &Arc<ModelEntry>| {
            let ready = entry.ready_model();
            ready.is_none_or(|ready| ready.model.takes_images())
        };
        self.library().is_some() || self.entries().iter().any(sees)
    }

    /// Bytes of memory of all models, including models that are being unloaded.
    pub fn memory_bytes(&self) -> u64 {
        let held: u64 = self
            .entries()
            .iter()
            .map(|entry| entry.memory_bytes())
            .sum();
        held + self.leaving_bytes.load(Ordering::SeqCst)
    }

    /// Begins to load a slot's model.
    pub fn begin_load(self: &Arc<Self>, entry: &Arc<ModelEntry>) -> Loading {
        Loading::begin_loading(Arc::clone(self), Arc::clone(entry))
    }

    /// Counts a load whose model is about to become ready.
    pub(crate) fn counts_load(&self, entry: &ModelEntry) {
        if entry.weights.is_none() {
            self.started.store(true, Ordering::SeqCst);
        }
        self.loads.fetch_add(1, Ordering::Relaxed);
    }

    /// A load failed.
    pub(crate) fn loading_failed(&self, entry: &ModelEntry) {
        self.loading_ended(entry, ModelState::Failed);
    }

    /// A load ended without a model. Names of the model are looked up again.
    pub(crate) fn loading_ended(&self, entry: &ModelEntry, state: ModelState) {
        entry.set_state(state);
        self.names.clear_names();
        self.news.notify_one();
    }

    /// Whether a request loads the first model again.
    pub(crate) fn comes_when_asked(&self) -> bool {
        self.library().is_some() && self.started.load(Ordering::SeqCst)
    }

    /// Queues a model for loading, unless loaded.
    pub(crate) fn request_load(&self, entry: &ModelEntry) {
        if entry.queue_load(clock::now()) {
            self.news.notify_one();
        }
    }

    /// Clears the cache of resolved names.
    pub fn forget_names(&self) {
        self.names.clear_names();
    }

    /// Wakes the loader for a new decision about loaded models.
    pub fn look_again(&self) {
        self.news.notify_one();
    }

    /// Shutdown: no request is admitted, and running ones end within the drain time.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
        let limits = self.gateway_limits();
        self.ready_models()
            .for_each(|(_, serving)| serving.close_admission(&limits));
    }

    /// Closes all models that the server has loaded, and waits for the end; may block.
    pub fn release_bytes(&self) {
        for close in self.entries().iter().filter_map(|entry| entry.take_held()) {
            close();
        }
    }

    /// Applies the limits that hold now to ready models.
    pub(crate) fn apply_limits(&self) {
        let limits = self.gateway_limits();
        self.ready_models()
            .for_each(|(_, serving)| serving.set_limits(&limits));
        self.news.notify_one();
    }

    /// The bounds under which models are served.
    pub fn gateway_limits(&self) -> Arc<GatewayLimits> {
        self.limits.now()
    }

    /// Whether [`Self::close`] was called. Read after a model was put into the entry, so that one of the two calls
    /// sees the other.
    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Ready when [`Self::close`] was called.
    pub(crate) fn close_watch(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }
}
