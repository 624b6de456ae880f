//! Whether requests are taken, for whoever wants to know and wait.

use crate::gateway::served::{ServedModels, State};
use tokio::sync::watch;

/// Where the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is bound; nobody began to load its model.
    Unloaded,
    /// Its model is being loaded.
    Loading,
    /// Requests are taken: the model is loaded, or comes when it is asked.
    Ready,
    /// The model could not be loaded: the server is about to leave.
    Failed,
    /// It was asked to leave: what runs may end, nothing new is taken.
    Draining,
}

impl Stage {
    /// How it is spelled.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Draining => "draining",
        }
    }
}

/// Whether the server leaves, and everybody who watches it.
pub(crate) struct Readiness {
    draining: watch::Sender<bool>,
}

impl Readiness {
    /// Of a server that stays.
    pub(crate) fn new() -> Self {
        Self {
            draining: watch::Sender::new(false),
        }
    }

    /// The server is about to leave.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Where it is: what the model is that requests mean by default, and whether it leaves.
    pub(crate) fn stage(&self, models: &ServedModels) -> Stage {
        match models.first().state() {
            State::Failed | State::TooLarge { .. } => Stage::Failed,
            _ if *self.draining.borrow() => Stage::Draining,
            // Whoever asks waits for it.
            State::Unloaded | State::Queued { .. } | State::Loading { .. }
                if models.comes_when_asked() =>
            {
                Stage::Ready
            }
            State::Unloaded | State::Queued { .. } => Stage::Unloaded,
            State::Loading { .. } => Stage::Loading,
            State::Ready(_) => Stage::Ready,
        }
    }

    /// Ready when it leaves.
    pub(crate) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }
}
