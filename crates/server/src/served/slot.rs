//! One name's state, and everybody who watches it.

use super::{LoadProgress, Serving};
use crate::clock;
use crate::error::{ApiError, Blame};
use crate::live_config::LiveConfig;
use axum::http::StatusCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Where a model is.
#[derive(Clone)]
pub(crate) enum State {
    /// Nobody began to load it.
    Unloaded,
    /// It is being loaded.
    Loading {
        since: Instant,
        progress: LoadProgress,
    },
    /// It answers.
    Ready(Arc<Serving>),
    /// It could not be loaded. The operator is told why, in the log; it may name paths.
    Failed,
}

impl State {
    /// How it is spelled.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading { .. } => "loading",
            Self::Ready(_) => "ready",
            Self::Failed => "failed",
        }
    }

    /// When it may be ready, where that is to be expected.
    pub(crate) fn retry_after(&self, unknown: Duration) -> Option<Duration> {
        match self {
            Self::Loading { since, progress } => {
                let passed = clock::now().saturating_duration_since(*since);
                Some(progress.left(passed, unknown))
            }
            Self::Unloaded => Some(unknown),
            Self::Ready(_) | Self::Failed => None,
        }
    }
}

/// A model by its name. Watching it is telemetry: who looks late sees the newest.
pub(crate) struct Slot {
    pub(crate) id: String,
    /// Seconds since the Unix epoch, of its name; a loaded model has its own.
    pub(crate) created_unix_s: i64,
    state: watch::Sender<State>,
    config: Arc<LiveConfig>,
}

impl Slot {
    /// A name and nothing yet.
    pub(super) fn new(id: String, config: Arc<LiveConfig>) -> Self {
        Self {
            id,
            created_unix_s: clock::unix_s(),
            state: watch::Sender::new(State::Unloaded),
            config,
        }
    }

    /// Where it is.
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// To wait for a change.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// The model, if it is ready.
    pub(crate) fn serving(&self) -> Option<Arc<Serving>> {
        match &*self.state.borrow() {
            State::Ready(serving) => Some(Arc::clone(serving)),
            _ => None,
        }
    }

    /// The same for a request that needs it.
    ///
    /// # Errors
    /// It is not ready: how far it is, and when to come back.
    pub(crate) fn expect_ready(&self) -> Result<Arc<Serving>, ApiError> {
        let state = self.state();
        let capacity = |code, words: String| {
            let unknown = self.config.now().retry_after;
            let wait = state.retry_after(unknown).unwrap_or(unknown);
            Err(ApiError::capacity(code, words, wait))
        };
        match &state {
            State::Ready(serving) => Ok(Arc::clone(serving)),
            State::Loading { progress, .. } => capacity(
                "model_loading",
                format!("the model is being loaded: {}", progress.words()),
            ),
            State::Unloaded => capacity("model_unloaded", "the model is not loaded".to_owned()),
            State::Failed => Err(ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Blame::Ours,
                "model_failed",
                "the model could not be loaded; the server's log says why",
            )),
        }
    }

    pub(super) fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Only while it is loading.
    pub(super) fn set_progress(&self, new: LoadProgress) {
        self.state.send_if_modified(|state| match state {
            State::Loading { progress, .. } if *progress != new => {
                *progress = new;
                true
            }
            _ => false,
        });
    }
}
