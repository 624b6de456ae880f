//! The wait of recovered streams for their model.

use crate::models::{ModelEntry, ModelRegistry, ModelState, ReadyModel};
use std::sync::Arc;
use std::time::Duration;

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
                ModelState::Failed | ModelState::TooLarge { .. } if self.0.weights.is_none() => {}
                ModelState::Failed | ModelState::TooLarge { .. } => return None,
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
    pub(crate) async fn engine_found(&self, serving: &ReadyModel) {
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
