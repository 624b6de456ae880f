//! The bounds and clocks as they stand: whoever begins something reads them then.

use crate::gateway::config::ServerConfig;
use std::sync::Arc;
use tokio::sync::watch;

/// The configuration of a running server. What has begun keeps what it began with.
pub(crate) struct LiveConfig {
    now: watch::Sender<Arc<ServerConfig>>,
}

impl LiveConfig {
    /// As a server starts.
    pub(crate) fn new(config: ServerConfig) -> Self {
        Self {
            now: watch::Sender::new(Arc::new(config)),
        }
    }

    /// As it stands now.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.borrow())
    }

    /// From now on this.
    pub(crate) fn set(&self, config: ServerConfig) {
        self.now.send_replace(Arc::new(config));
    }
}
