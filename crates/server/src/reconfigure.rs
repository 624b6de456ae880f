//! Other bounds and clocks for a running server.

use crate::app::App;
use crate::config::ServerConfig;
use crate::connection_limiter::ConnectionLimiter;
use crate::host_allow_list::HostAllowList;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// Gives a running server another configuration. Cheap to clone; does nothing once the server is gone.
#[derive(Clone)]
pub struct Reconfigure {
    pub(crate) app: App,
    pub(crate) peers: Arc<ConnectionLimiter>,
    pub(crate) hosts: Arc<RwLock<HostAllowList>>,
    pub(crate) local: SocketAddr,
}

impl Reconfigure {
    /// From now on this holds for whatever begins: connections, requests, streams. What has begun goes
    /// on as it began; only a retention that became shorter also counts for streams that have ended, and
    /// a queue or a limit that became shorter sends nobody away who is in it.
    ///
    /// What sockets, threads and pools were made with at the start stays as it was: `bind`, `backlog`,
    /// `send_buffer_bytes`, `answer_buffer_bytes`, `answer_buffers_bytes_max`, `open_requests_max`, `gone_max` and `otlp`.
    pub fn apply(&self, config: ServerConfig) {
        let made = self.app.config.now();
        let mut config = ServerConfig {
            bind: made.bind,
            backlog: made.backlog,
            send_buffer_bytes: made.send_buffer_bytes,
            answer_buffer_bytes: made.answer_buffer_bytes,
            answer_buffers_bytes_max: made.answer_buffers_bytes_max,
            open_requests_max: made.open_requests_max,
            #[cfg(feature = "otlp")]
            otlp: made.otlp.clone(),
            ..config
        };
        config.streams.gone_max = made.streams.gone_max;
        let app = &self.app;
        *self.hosts.write().unwrap_or_else(PoisonError::into_inner) =
            HostAllowList::new(self.local, &config.hosts);
        self.peers
            .rebound(config.connections_max, config.connections_per_ip_max);
        app.gateway.generations.limits.set(config.gateway_limits());
        app.config.set(config);
        app.gateway.apply_limits();
    }
}
