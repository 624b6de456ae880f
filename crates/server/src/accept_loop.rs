//! The accept loop, and the end of the connections at a graceful shutdown.

use crate::app::App;
use crate::connection;
use crate::connection::connection_limiter::ConnectionLimiter;
use crate::connection::rejected_connection::reject_connection;
use crate::connection::socket_options;
use axum::Router;
use cluster::messages::Role;
use futures_util::FutureExt;
use gateway::hand_over::HandOver;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Result of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were closed by force because the drain time was over.
    pub cut: usize,
}

/// The connections of a server.
pub(crate) struct AcceptLoop {
    router: Router,
    draining: watch::Sender<bool>,
    /// At most `connections_max`.
    connections: JoinSet<()>,
    app: App,
    limiter: Arc<ConnectionLimiter>,
}

impl AcceptLoop {
    pub(crate) fn new(router: Router, app: App, limiter: Arc<ConnectionLimiter>) -> Self {
        Self {
            router,
            draining: watch::Sender::new(false),
            connections: JoinSet::new(),
            app,
            limiter,
        }
    }

    /// Accepts connections until `shutdown` is ready.
    pub(crate) async fn accept_until(
        mut self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Self {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => {
                    self.accept_waiting(listener);
                    return self;
                }
                Some(_) = self.connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => self.accept_connection(stream, from),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                },
            }
        }
    }

    /// Accepts the connections that the kernel has established already, then closes the listener. The kernel would
    /// reset them, and their clients may have sent a request that a proxy does not send again.
    fn accept_waiting(&mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        for _ in 0..self.app.config.now().backlog {
            let Ok((stream, from)) = listener.accept() else {
                return;
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Ok(stream) = TcpStream::from_std(stream) {
                self.accept_connection(stream, from);
            }
        }
    }

    fn accept_connection(&mut self, stream: TcpStream, from: SocketAddr) {
        let connected = match self.limiter.admit_connection(from.ip()) {
            Ok(connected) => connected,
            Err(limit) => {
                self.app.metrics.count_rejection("too_many_connections");
                return reject_connection(&stream, limit);
            }
        };
        if let Err(error) = socket_options::set_options(&stream, &self.app.config.now()) {
            // The client may have disconnected; a connected client is served without the options.
            tracing::debug!(%error, "cannot set socket options");
        }
        let (router, app, draining) = (
            self.router.clone(),
            self.app.clone(),
            self.draining.subscribe(),
        );
        // An `async` block around it would hold the arguments a second time.
        let serving = connection::serve_connection(stream, router, app, draining);
        self.connections
            .spawn(serving.map(move |()| drop(connected)));
    }

    /// Ends the connections: each after its current response, the rest by force at the end of the drain time.
    pub(crate) async fn drain_connections(mut self) -> Drained {
        let config = self.app.config.now();
        self.draining.send_replace(true);
        if let Some(journal) = self.app.gateway.generations.journal.get() {
            journal.begin_shutdown();
        }
        let moving = HandOver::begin(&self.app.gateway);
        self.app.lifecycle.begin_shutdown();
        if let Some(moving) = &moving {
            moving.store().await;
        }
        // An engine has left before: gateways take its requests back first.
        let node = self.app.cluster.get();
        if let Some(node) = node.filter(|node| node.role() != Role::Engine) {
            node.leave().await;
        }
        if let Some(moving) = moving {
            moving.finish();
        }
        let all = async { while self.connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(config.drain + config.drain_flush, all).await;
        let cut = self.connections.len();
        self.connections.shutdown().await;
        Drained { cut }
    }
}
