//! The configuration of a running server.

use crate::config::server_config::ServerConfig;
use std::sync::Arc;
use tokio::sync::watch;

/// The current configuration. A running request or connection keeps the configuration that was current at its start.
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

    /// The current configuration.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.borrow())
    }

    /// Replaces the configuration for all requests and connections that begin later.
    pub(crate) fn set(&self, config: ServerConfig) {
        self.now.send_replace(Arc::new(config));
    }
}
