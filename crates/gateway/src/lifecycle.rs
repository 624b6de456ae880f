//! The lifecycle of the server: loading the first model, ready, draining.

use crate::models::{ModelRegistry, ModelState};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// A stage in the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStage {
    /// The socket is bound; loading of the model has not begun.
    Unloaded,
    /// The model is being loaded.
    Loading,
    /// Requests are accepted: the model is loaded, or is loaded on demand.
    Ready,
    /// The model is ready, but its engines are other processes, and none can be reached: requests wait. Or the model's device is
    /// lost: requests fail.
    Unavailable,
    /// The model could not be loaded; the server is about to exit.
    Failed,
    /// Graceful shutdown: running streams may end, new requests are rejected.
    Draining,
}

impl ServerStage {
    /// The stage's name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
            Self::Draining => "draining",
        }
    }
}

/// Why engines cannot be used; `None`: they can.
pub type EngineProblem = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// The stage of a server, derived from the models and the graceful shutdown.
pub struct Lifecycle {
    models: Arc<ModelRegistry>,
    draining: watch::Sender<bool>,
    engine_problem: OnceLock<EngineProblem>,
    stall: OnceLock<EngineProblem>,
}

impl Lifecycle {
    /// The lifecycle of a server that is not shutting down.
    pub fn new(models: Arc<ModelRegistry>) -> Self {
        Self {
            models,
            draining: watch::Sender::new(false),
            engine_problem: OnceLock::new(),
            stall: OnceLock::new(),
        }
    }

    /// Sets where the problem of engines in other processes is known from. Only the first call counts.
    pub fn watch_engines(&self, problem: EngineProblem) {
        let _ = self.engine_problem.set(problem);
    }

    /// Why the engines of other processes, or the engine in this process, cannot be used; `None` where they can.
    pub fn engine_problem(&self) -> Option<String> {
        let of_others = self.engine_problem.get().and_then(|problem| problem());
        of_others.or_else(|| self.lost_device())
    }

    fn lost_device(&self) -> Option<String> {
        let model = &self.models.first_entry().ready_model()?.model;
        let name = model.device.as_ref();
        let name = name.map_or_else(String::new, |name| format!(" {}", name()));
        let is_lost = model.handle.engine.stats().device_lost() > 0;
        is_lost.then(|| {
            format!("the model's device{name} is lost: it could not be opened again, or failed too often")
        })
    }

    /// Sets where it is known from that an engine of this process is stuck. Only the first call counts.
    pub fn watch_stalls(&self, stall: EngineProblem) {
        let _ = self.stall.set(stall);
    }

    /// Why this process is to be replaced: an engine of it is stuck. `None`: none is.
    pub fn stall(&self) -> Option<String> {
        self.stall.get().and_then(|stall| stall())
    }

    /// The models of the server.
    pub fn model_registry(&self) -> &Arc<ModelRegistry> {
        &self.models
    }

    /// Begins the graceful shutdown: running streams end within the drain time.
    pub fn begin_shutdown(&self) {
        self.draining.send_replace(true);
        self.models.close();
    }

    /// The current stage: the state of the default model, and whether the server is draining.
    pub fn stage(&self) -> ServerStage {
        match self.models.first_entry().state() {
            ModelState::Failed | ModelState::TooLarge(_) => ServerStage::Failed,
            _ if *self.draining.borrow() => ServerStage::Draining,
            // A request for the model waits until the model is loaded.
            ModelState::Unloaded | ModelState::Queued { .. } | ModelState::Loading { .. }
                if self.models.comes_when_asked() =>
            {
                ServerStage::Ready
            }
            ModelState::NoEngine(_) => ServerStage::Unavailable,
            ModelState::Unloaded | ModelState::Queued { .. } => ServerStage::Unloaded,
            ModelState::Loading { .. } => ServerStage::Loading,
            ModelState::Ready(_) if self.engine_problem().is_some() => ServerStage::Unavailable,
            ModelState::Ready(_) => ServerStage::Ready,
        }
    }

    /// Becomes `true` when the graceful shutdown begins.
    pub fn drain_watch(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }
}
