//! Changes of limits and timeouts while the server runs.

use crate::access::origins::HostAllowList;
use crate::app::App;
use crate::config::server_config::ServerConfig;
use crate::connection::connection_limiter::ConnectionLimiter;
use crate::connection::tls::{TlsCertificate, TlsSlot};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

/// A handle that changes the configuration of a running server. Without effect after the server has ended.
#[derive(Clone)]
pub struct Reconfigure {
    pub(crate) app: App,
    pub(crate) limiter: Arc<ConnectionLimiter>,
    pub(crate) hosts: Arc<RwLock<HostAllowList>>,
    pub(crate) tls: TlsSlot,
    pub(crate) local: SocketAddr,
}

impl Reconfigure {
    /// Encrypts connections that are accepted from now on with this certificate.
    pub fn set_certificate(&self, certificate: TlsCertificate) {
        self.tls.set(certificate);
    }

    /// Applies the configuration to connections, requests and streams that begin from now on. Running ones keep their
    /// configuration, with one exception: a shorter retention also applies to ended streams. A shorter queue or a
    /// lower limit rejects no request that is queued already.
    ///
    /// Settings that sockets, threads and pools were created with do not change: `bind`, `backlog`,
    /// `send_buffer_bytes`, `answer_buffer_bytes`, `answer_buffers_bytes_max`, `open_requests_max` and
    /// `gone_max`.
    pub fn apply(&self, config: ServerConfig) {
        let initial = self.app.config.now();
        let mut config = ServerConfig {
            bind: initial.bind,
            backlog: initial.backlog,
            send_buffer_bytes: initial.send_buffer_bytes,
            answer_buffer_bytes: initial.answer_buffer_bytes,
            answer_buffers_bytes_max: initial.answer_buffers_bytes_max,
            open_requests_max: initial.open_requests_max,
            ..config
        };
        config.streams.gone_max = initial.streams.gone_max;
        let app = &self.app;
        *self.hosts.write().unwrap_or_else(PoisonError::into_inner) =
            HostAllowList::new(self.local, &config.hosts);
        self.limiter
            .set_limits(config.connections_max, config.connections_per_ip_max);
        app.gateway.generations.limits.set(config.gateway_limits());
        app.gateway.outbox.set_settings(config.webhooks.clone());
        app.config.set(config);
        app.gateway.apply_limits();
    }
}
