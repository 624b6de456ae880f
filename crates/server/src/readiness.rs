//! Whether requests are taken, for whoever wants to know and wait.

use tokio::sync::watch;

/// Where the server is. (It is bound once its model is loaded, so there is nothing before `Ready`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The model is loaded and requests are taken.
    Ready,
    /// It was asked to leave: what runs may end, nothing new is taken.
    Draining,
}

impl Stage {
    /// How it is spelled.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// The server's stage, and everybody who watches it.
pub(crate) struct Readiness {
    stage: watch::Sender<Stage>,
}

impl Readiness {
    /// Of a server with a model.
    pub(crate) fn ready() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Ready),
        }
    }

    /// The server is about to leave.
    pub(crate) fn drain(&self) {
        self.stage.send_replace(Stage::Draining);
    }

    /// Where it is.
    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// To wait for a change.
    pub(crate) fn watch(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }
}
