//! The configuration of a running server.

use crate::config::ServerConfig;
use std::sync::Arc;
use tokio::sync::watch;

/// The configuration that holds now. A request or connection keeps the configuration that it began with.
pub(crate) struct LiveConfig {
    now: watch::Sender<Arc<ServerConfig>>,
}

impl LiveConfig {
    /// The configuration that the server starts with.
    pub(crate) fn new(config: ServerConfig) -> Self {
        Self {
            now: watch::Sender::new(Arc::new(config)),
        }
    }

    /// The configuration that holds now.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.borrow())
    }

    /// Replaces the configuration for everything that begins from now on.
    pub(crate) fn set(&self, config: ServerConfig) {
        self.now.send_replace(Arc::new(config));
    }
}
