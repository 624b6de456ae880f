//! Name -> state, of all models this server may answer for.

use super::{Loading, Serving, Slot};
use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::live_config::LiveConfig;
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// All models of this server. Their names are fixed when it is bound; the first is what a request
/// without a name means.
pub(crate) struct ServedModels {
    slots: Box<[Arc<Slot>]>,
    config: Arc<LiveConfig>,
    /// The server leaves: who becomes ready now is told to leave too.
    closed: AtomicBool,
}

impl ServedModels {
    /// Names without models.
    pub(crate) fn new(first: String, others: Vec<String>, config: Arc<LiveConfig>) -> Self {
        let slot = |id| Arc::new(Slot::new(id, Arc::clone(&config)));
        Self {
            slots: std::iter::once(first).chain(others).map(slot).collect(),
            config,
            closed: AtomicBool::new(false),
        }
    }

    /// All of them, the one that is meant by default first.
    pub(crate) fn all(&self) -> &[Arc<Slot>] {
        &self.slots
    }

    /// The one that is meant where none is named.
    pub(crate) fn first(&self) -> &Arc<Slot> {
        &self.slots[0]
    }

    /// The one of this name; no name means the first.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<&Arc<Slot>, ApiError> {
        let Some(name) = name else {
            return Ok(self.first());
        };
        let named = self.slots.iter().find(|slot| slot.id == name);
        named.ok_or_else(no_such_model)
    }

    /// Those that are ready.
    pub(crate) fn serving(&self) -> impl Iterator<Item = Arc<Serving>> {
        self.slots.iter().filter_map(|slot| slot.serving())
    }

    /// Begins to load a slot's model.
    pub(crate) fn load(self: &Arc<Self>, slot: &Arc<Slot>) -> Loading {
        Loading::begin(Arc::clone(self), Arc::clone(slot))
    }

    /// The server leaves: nobody is let in any more, and what runs ends within the configured time.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let config = self.config();
        self.serving().for_each(|serving| serving.close(&config));
    }

    /// Those that are ready are served under the bounds as they stand now.
    pub(crate) fn rebound(&self) {
        let config = self.config();
        self.serving().for_each(|serving| serving.rebound(&config));
    }

    /// The bounds under which models are served.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.now()
    }

    /// Whether [`Self::close`] was called. Asked after a model was put into its slot, so that one of the
    /// two sees the other.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// No slot has this name.
fn no_such_model() -> ApiError {
    let mut error = ApiError::field(
        "model",
        "model_not_found",
        "this server does not serve that model",
    );
    error.status = StatusCode::NOT_FOUND;
    error
}
