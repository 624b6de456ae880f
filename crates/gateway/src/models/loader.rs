//! The model loader and evictor: one task that loads one model after another, and unloads models.
//!
//! # States
//!
//! A model entry is *unloaded*, *queued*, *loading*, and *ready*, *failed*, *too large* or *without engine* (see
//! [`ModelState`]). Requests move an entry from unloaded, failed, too large and without engine to queued; other transitions belong to this task, and
//! to `keep_alive: 0`.
//!
//! - *queued → loading*: the entry that waits longest, when no model is being loaded and the model's bytes fit into
//!   `memory_bytes` beside all loaded models, those being unloaded included. If the model does not fit, the least
//!   recently used idle model is evicted; without an idle model, the task waits for one. Entries that requests with
//!   another model wait for come first (`nested_waits`).
//! - *loading → ready, failed, too large*: by the thread that loads. Where a device has no memory for the model, the thread unloads
//!   the least recently used idle model and tries once more.
//! - *ready → unloaded*: an idle model whose keep-alive time is over, or whose memory is needed. Checking that a
//!   model is idle and removing the model from the entry is one step under the entry's lock: an earlier request holds
//!   the model, so that the model is not idle, and a later request finds the entry unloaded and queues the model
//!   again.
//!
//! The task sleeps until notified, and checks each [`WAIT_MAX`] while a keep-alive time runs or an entry waits for
//! memory: requests end without a notification.

use super::model_entry::UnloadingModel;
use super::{
    LoadProgress, Loading, ModelEntry, ModelFacts, ModelRegistry, ModelState, ServedModel,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use wire::clock;
use wire::derived_model::DerivedModel;

/// Time between two checks for idle models, while idle models matter.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Loads and lets go, for ever.
pub async fn run_loader(models: Arc<ModelRegistry>, library: Arc<dyn Library>) {
    let mut switch = ModelLoader {
        models: Arc::clone(&models),
        library,
        loading: None,
        front: None,
    };
    loop {
        let restless = switch.run_turn().await;
        let look = async {
            if restless {
                tokio::time::sleep(WAIT_MAX).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = models.news.notified() => {}
            () = switch.load_ended() => {}
            () = look => {}
        }
    }
}

struct ModelLoader {
    models: Arc<ModelRegistry>,
    library: Arc<dyn Library>,
    /// Completes when the model that is being loaded is ready or has failed.
    loading: Option<oneshot::Receiver<()>>,
    /// The entry that was to be loaded at the last look, and the bytes of the entry's model.
    front: Option<(Arc<ModelEntry>, u64)>,
}

impl ModelLoader {
    /// Unloads and begins loads as far as possible. True: more may be possible without a notification.
    async fn run_turn(&mut self) -> bool {
        let now = clock::now();
        let mut restless = false;
        for entry in self.models.entries() {
            let until = entry.keep_alive().unload_time(entry.last_used());
            match (entry.is_idle(), until) {
                (true, Some(until)) if until <= now => {
                    tracing::info!(model = entry.id(), "unloaded: idle");
                    self.models.unload(&entry).await;
                }
                (true, until) => restless |= until.is_some(),
                (false, _) if entry.ready_model().is_some() => {
                    entry.mark_used(now);
                    restless |= until.is_some();
                }
                (false, _) => {}
            }
        }
        restless | self.load_next().await
    }

    /// Begins to load the next entry, if the memory is free. True: an entry waits.
    async fn load_next(&mut self) -> bool {
        if self.loading.is_some() || self.models.is_closed() {
            return false;
        }
        let Some((entry, needed)) = self.next_entry().await else {
            return false;
        };
        let limits = self.models.gateway_limits();
        if let Some(budget) = limits.models.memory_bytes {
            if needed > budget {
                tracing::warn!(
                    model = entry.id(),
                    needed,
                    budget,
                    "larger than models.memory_budget_mib"
                );
                entry.set_state(ModelState::TooLarge(budget_words(needed, budget)));
                self.front = None;
                return true;
            }
            while self.models.memory_bytes().saturating_add(needed) > budget {
                let Some(longest) = self.models.longest_idle() else {
                    return true;
                };
                tracing::info!(model = longest.id(), "evicted: its memory is needed");
                self.models.unload(&longest).await;
            }
        }
        self.front = None;
        self.begin_load(&entry);
        false
    }

    /// The next entry to be loaded. The bytes of the entry's model are determined once.
    async fn next_entry(&mut self) -> Option<(Arc<ModelEntry>, u64)> {
        let slots = self.models.entries();
        let entry = self.models.nested_waits.first_queued(&slots)?;
        let front = self.front.as_ref();
        if let Some(front) = front.filter(|(front, _)| Arc::ptr_eq(front, entry)) {
            return Some(front.clone());
        }
        let (library, weights) = (Arc::clone(&self.library), entry.weights.clone());
        let needed =
            tokio::task::spawn_blocking(move || library.bytes_needed(weights.as_deref())).await;
        match needed.unwrap_or_else(|_| Err("reading the model's size panicked".to_owned())) {
            Ok(needed) => {
                self.front = Some((Arc::clone(entry), needed));
                self.front.clone()
            }
            Err(why) => {
                tracing::error!(model = entry.id(), "cannot be loaded: {why}");
                self.models.loading_failed(entry);
                None
            }
        }
    }

    fn begin_load(&mut self, entry: &Arc<ModelEntry>) {
        let (told, loading) = oneshot::channel();
        let hand = self.models.begin_load(entry);
        let (library, models) = (Arc::clone(&self.library), Arc::clone(&self.models));
        let (weights, name) = (entry.weights.clone(), entry.id().to_owned());
        let thread = std::thread::Builder::new().name("load".to_owned());
        let started = thread.spawn(move || {
            load_model((&*library, &models), weights.as_deref(), hand, &name);
            // No receiver is left at shutdown.
            let _ = told.send(());
        });
        match started {
            Ok(_) => self.loading = Some(loading),
            // `Loading` was dropped with the closure and has reported the failure.
            Err(why) => tracing::error!(%why, "cannot start a thread to load a model"),
        }
    }

    /// Ready when loading is over.
    async fn load_ended(&mut self) {
        match &mut self.loading {
            // A thread that panicked is over too.
            Some(loading) => drop(loading.await),
            None => std::future::pending().await,
        }
        self.loading = None;
    }
}

/// For clients.
fn budget_words(needed: u64, budget: u64) -> Arc<str> {
    let [needed, budget] = [needed, budget].map(|bytes| bytes >> 20);
    format!(
        "the model needs {needed} MiB of memory, and all models together may have {budget} MiB \
         (models.memory_budget_mib)"
    )
    .into()
}

fn load_model(
    (library, models): (&dyn Library, &ModelRegistry),
    weights: Option<&str>,
    hand: Loading,
    name: &str,
) {
    tracing::info!(model = name, "loading");
    let load = || library.load(weights, &mut |progress| hand.report_progress(progress));
    let loaded: Result<LoadedModel, LoadError> = match load() {
        Err(LoadError::DeviceMemory(why)) if models.evict_longest_idle() => {
            tracing::info!(model = name, "loading again: {why}");
            load()
        }
        loaded => loaded,
    };
    match loaded {
        Ok(loaded) => {
            tracing::info!(model = name, mib = loaded.bytes >> 20, "loaded");
            hand.model_loaded(loaded);
        }
        Err(LoadError::NoEngine(why)) => {
            tracing::warn!(model = name, "{why}");
            hand.no_engine(why);
        }
        Err(LoadError::DeviceMemory(why)) => {
            tracing::error!(model = name, "cannot be loaded: {why}");
            hand.too_large(why);
        }
        Err(LoadError::Failed(why)) => {
            tracing::error!(model = name, "cannot be loaded: {why}");
            hand.load_failed();
        }
    }
}

impl ModelRegistry {
    /// Unloads an unused model, and waits until the memory is free. The unloading continues if the caller is dropped.
    pub async fn unload(self: &Arc<Self>, entry: &ModelEntry) -> bool {
        let Some(leaving) = self.begin_unload(entry) else {
            return false;
        };
        let models = Arc::clone(self);
        let gone = tokio::task::spawn_blocking(move || models.end_unload(leaving));
        // A panic of the engine was logged by the thread that closes the engine.
        let _ = gone.await;
        true
    }

    fn begin_unload(&self, entry: &ModelEntry) -> Option<UnloadingModel> {
        let leaving = entry.begin_unload()?;
        self.leaving_bytes
            .fetch_add(leaving.bytes, Ordering::SeqCst);
        Some(leaving)
    }

    fn end_unload(&self, leaving: UnloadingModel) {
        let bytes = leaving.bytes;
        leaving.close(&self.gateway_limits());
        self.leaving_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.unloads.fetch_add(1, Ordering::Relaxed);
        self.look_again();
    }

    /// The least recently used idle model.
    fn longest_idle(&self) -> Option<Arc<ModelEntry>> {
        let idle = |entry: &Arc<ModelEntry>| entry.is_idle() && entry.memory_bytes() > 0;
        let idle = self.entries().into_iter().filter(idle);
        idle.min_by_key(|entry| entry.last_used())
    }

    /// Unloads the least recently used idle model and returns when its memory is free; false: no model is idle. Blocks.
    fn evict_longest_idle(&self) -> bool {
        let longest = self.longest_idle().inspect(|entry| {
            tracing::info!(model = entry.id(), "evicted: its device's memory is needed");
        });
        let leaving = longest.and_then(|entry| self.begin_unload(&entry));
        leaving.map(|leaving| self.end_unload(leaving)).is_some()
    }
}

/// Models that a server may load in addition to the initial model, and operations on them.
///
/// Every call may block: the server runs the calls on blocking threads.
pub trait Library: Send + Sync + 'static {
    /// All models, including the model that the server was started with, in the order of lists.
    fn all(&self) -> Vec<LocalModel>;
    /// The model of this name, which a client sent. No name reaches a file outside the operator's directories.
    fn find(&self, name: &str) -> Option<LocalModel>;
    /// Whether the model that the server was started with is known: a gateway without one gets it from its engines. Until
    /// then a name may be found that is another model's later. Does not block.
    fn is_started(&self) -> bool {
        true
    }
    /// Why a request has to name its model; `None`: without a name it is for the model that the server was started with.
    /// Does not block.
    fn unnamed(&self) -> Option<&str> {
        None
    }
    /// Defaults of requests for the model that the server was started with. Does not block.
    fn started_defaults(&self) -> Option<Arc<DerivedModel>> {
        None
    }
    /// Bytes of memory that the loaded model takes, by the file's header.
    ///
    /// # Errors
    /// The file cannot be read; the message is for the log.
    fn bytes_needed(&self, weights: Option<&str>) -> Result<u64, String>;
    /// Loads the model and starts the engine. `tell` receives the progress.
    ///
    /// # Errors
    /// The model cannot be loaded.
    fn load(
        &self,
        weights: Option<&str>,
        tell: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedModel, LoadError>;
    /// Whether another model would describe images for this one, by the settings. Does not block.
    fn has_vision_proxy(&self, _model: &LocalModel) -> bool {
        false
    }
    /// Why the model, requested by this name, cannot be loaded now, where that is known before the load; the message is for
    /// the client.
    fn obstacle(&self, _name: &str, _weights: Option<&str>) -> Option<String> {
        None
    }
    /// Why there is no model of this name although other processes have one; the message is for the client.
    fn absence(&self, _name: &str) -> Option<String> {
        None
    }
    /// Downloads a model. `tell` receives the progress, and returns whether a client still waits.
    ///
    /// # Errors
    /// The download failed, or no client waits; received bytes stay, and the next pull continues.
    fn pull(
        &self,
        name: &str,
        tell: &mut dyn FnMut(PullNews<'_>) -> ControlFlow<()>,
    ) -> Result<(), LibraryError>;
    /// Gives a model another name.
    ///
    /// # Errors
    /// The model is unknown, or the new name is invalid.
    fn copy(&self, from: &str, to: &str) -> Result<(), LibraryError>;
    /// Removes a name, and the file with the last name.
    ///
    /// # Errors
    /// The name is unknown, or the file is not managed by the model store.
    fn delete(&self, name: &str) -> Result<(), LibraryError>;
    /// Creates a derived model: other defaults for the weights of a model.
    ///
    /// # Errors
    /// The base model is unknown, or the new name is invalid.
    fn make(&self, name: &str, made: DerivedModel) -> Result<(), LibraryError>;
}

/// A model that is there, loaded or not.
#[derive(Clone, Debug)]
pub struct LocalModel {
    /// Name in requests.
    pub name: String,
    /// Source of the weights, by the model store's name; models with equal weights are loaded once. `None`: the
    /// model that the server was started with.
    pub weights: Option<String>,
    /// Metadata of the file.
    pub facts: Arc<ModelFacts>,
    /// Defaults of a derived model.
    pub made: Option<Arc<DerivedModel>>,
    /// Engines of other processes that compute for the model now; `None`: the engine is in this process.
    pub engines: Option<usize>,
}

/// A model that was loaded.
pub struct LoadedModel {
    /// The loaded model.
    pub model: Arc<ServedModel>,
    /// Bytes of memory that the model takes.
    pub bytes: u64,
    /// Ends the engine and returns when the memory is free; may block.
    pub close: Box<dyn FnOnce() + Send>,
}

/// Why a model was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The message is for the log.
    Failed(String),
    /// No engine of another process computes for the model; the message is for the client.
    NoEngine(String),
    /// A device has no memory for the model: it may when another model is unloaded. The message is for the client.
    DeviceMemory(String),
}

impl From<String> for LoadError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullNews<'a> {
    /// The repository's files are being listed.
    Listing,
    /// A file is being fetched.
    Fetching {
        /// Expected hash of the content: `sha256:` or `git:`, and hexadecimal digits.
        digest: &'a str,
        /// Size in bytes.
        total: u64,
        /// Bytes received.
        completed: u64,
    },
    /// The checksum is being verified.
    Verifying,
    /// The name is being recorded.
    Naming,
}

/// Why something could not be done to a model. The words name no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// There is no model of that name.
    #[error("model '{0}' not found")]
    Unknown(String),
    /// The caller can correct the request.
    #[error("{0}")]
    Invalid(String),
    /// Another party failed: the hub, the disk.
    #[error("{0}")]
    Failed(String),
    /// No client waited any more.
    #[error("the load was cancelled: no request waits for the model")]
    Abandoned,
}
