//! The accept loop, and the end of the connections at a graceful shutdown.

use crate::app::App;
use crate::connection;
use crate::connection::client_socket::{self, ClientSocket, UnixSocket, UnixStream};
use crate::connection::connection_limiter::{
    ConnectionLimiter, ConnectionPermit, reject_connection,
};
use crate::connection::tls::{TlsSlot, accept_tls};
use axum::Router;
use cluster::messages::Role;
use futures_util::FutureExt;
use gateway::takeover::HandOver;
use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The address that counts for connections over a Unix socket, in the limit for each address.
const UNIX_PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Sockets that are listened on.
pub(crate) struct Listeners {
    pub(crate) tcp: TcpListener,
    pub(crate) unix: Option<UnixSocket>,
}

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
    tls: TlsSlot,
}

/// A connection that was accepted.
enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Listeners {
    /// The next connection over one of the sockets.
    async fn accept(&self) -> io::Result<Accepted> {
        tokio::select! {
            accepted = self.tcp.accept() => accepted.map(|(stream, from)| Accepted::Tcp(stream, from)),
            accepted = self.accept_unix() => accepted.map(Accepted::Unix),
        }
    }

    /// The next connection over the Unix socket; never without one.
    async fn accept_unix(&self) -> io::Result<UnixStream> {
        match &self.unix {
            Some(unix) => unix.listener.accept().await.map(|(stream, _)| stream),
            None => pending().await,
        }
    }
}

impl AcceptLoop {
    pub(crate) fn new(
        router: Router,
        app: App,
        limiter: Arc<ConnectionLimiter>,
        tls: TlsSlot,
    ) -> Self {
        Self {
            router,
            draining: watch::Sender::new(false),
            connections: JoinSet::new(),
            app,
            limiter,
            tls,
        }
    }

    /// Accepts connections until `shutdown` is ready. Returns the listeners, which go on listening.
    pub(crate) async fn accept_until(
        mut self,
        listeners: Listeners,
        shutdown: impl Future<Output = ()>,
    ) -> (Self, Listeners) {
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return (self, listeners),
                Some(_) = self.connections.join_next() => {}
                accepted = listeners.accept() => self.serve_next(accepted).await,
            }
        }
    }

    async fn serve_next(&mut self, accepted: io::Result<Accepted>) {
        match accepted {
            Ok(Accepted::Tcp(stream, from)) => self.accept_tcp(stream, from),
            Ok(Accepted::Unix(stream)) => {
                self.serve_accepted(Box::new(ClientSocket::Unix(stream)), UNIX_PEER);
            }
            Err(error) => wait_after(&error).await,
        }
    }

    /// Accepts the connections that the kernel has established already, then closes the listeners. The kernel would
    /// reset them, and their clients may have sent a request that a proxy does not send again.
    fn accept_waiting(&mut self, listeners: Listeners) {
        let backlog = self.app.config.now().backlog;
        if let Some(listener) = listeners
            .unix
            .and_then(|unix| unix.listener.into_std().ok())
        {
            for stream in std::iter::repeat_with(|| listener.accept()).take(backlog as usize) {
                let Ok((stream, _)) = stream else { break };
                if stream.set_nonblocking(true).is_ok()
                    && let Ok(stream) = UnixStream::from_std(stream)
                {
                    self.serve_accepted(Box::new(ClientSocket::Unix(stream)), UNIX_PEER);
                }
            }
        }
        let Ok(listener) = listeners.tcp.into_std() else {
            return;
        };
        for _ in 0..backlog {
            let Ok((stream, from)) = listener.accept() else {
                return;
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Ok(stream) = TcpStream::from_std(stream) {
                self.accept_tcp(stream, from);
            }
        }
    }

    fn accept_tcp(&mut self, stream: TcpStream, from: SocketAddr) {
        if let Err(error) = client_socket::set_options(&stream, &self.app.config.now()) {
            // The client may have disconnected; a connected client is served without the options.
            tracing::debug!(%error, "cannot set socket options");
        }
        let Some(certificate) = self.tls.get() else {
            return self.serve_accepted(Box::new(ClientSocket::Tcp(stream)), from.ip());
        };
        let Some(connected) = self.admit(None, from.ip()) else {
            return;
        };
        let patience = self.app.config.now().header_timeout;
        let (router, app) = (self.router.clone(), self.app.clone());
        let draining = self.draining.subscribe();
        self.connections.spawn(async move {
            if let Some(stream) = accept_tls(stream, certificate, patience).await {
                let socket = Box::new(ClientSocket::Tls(stream));
                connection::serve_connection(socket, router, app, draining).await;
            }
            drop(connected);
        });
    }

    /// Counts a connection; above a limit it is rejected, with an answer on a socket that is in the clear.
    fn admit(&self, socket: Option<&ClientSocket>, from: IpAddr) -> Option<ConnectionPermit> {
        match self.limiter.admit_connection(from) {
            Ok(connected) => Some(connected),
            Err(limit) => {
                self.app.metrics.count_rejection("too_many_connections");
                reject_connection(socket, limit);
                None
            }
        }
    }

    fn serve_accepted(&mut self, socket: Box<ClientSocket>, from: IpAddr) {
        let Some(connected) = self.admit(Some(&*socket), from) else {
            return;
        };
        let (router, app, draining) = (
            self.router.clone(),
            self.app.clone(),
            self.draining.subscribe(),
        );
        // An `async` block around it would hold the arguments a second time.
        let serving = connection::serve_connection(socket, router, app, draining);
        self.connections
            .spawn(serving.map(move |()| drop(connected)));
    }

    /// Ends the connections: each after its current response, the rest by force at the end of the drain time.
    ///
    /// A process that is not in a cluster accepts connections until the last of them has ended: a proxy without another process passes on the
    /// 503 and its `Retry-After`, and would make a 502 of a connection that is refused. A process of a cluster closes its
    /// sockets, so that clients and proxies take another one at once.
    pub(crate) async fn drain_connections(mut self, listeners: Listeners) -> Drained {
        let config = self.app.config.now();
        let listeners = match self.app.cluster.get() {
            None => Some(listeners),
            Some(_) => {
                self.accept_waiting(listeners);
                None
            }
        };
        if let Some(journal) = self.app.gateway.generations.journal.get() {
            journal.begin_shutdown();
        }
        let moving = HandOver::begin(&self.app.gateway);
        self.app.lifecycle.begin_shutdown();
        // Not before: a client whose idle connection was closed must get 503 on its other connections.
        self.draining.send_replace(true);
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
        let mut running = std::mem::take(&mut self.connections);
        let ended = self.await_ends(&mut running, listeners);
        let _ = tokio::time::timeout(config.drain + config.drain_flush, ended).await;
        let cut = running.len() + self.connections.len();
        running.shutdown().await;
        self.connections.shutdown().await;
        Drained { cut }
    }

    /// Waits for the ends of the connections from before the shutdown, and rejects the requests of those that come
    /// meanwhile; then closes the listeners, and waits for the latter.
    async fn await_ends(&mut self, running: &mut JoinSet<()>, listeners: Option<Listeners>) {
        if let Some(listeners) = listeners {
            loop {
                tokio::select! {
                    ended = running.join_next() => if ended.is_none() { break },
                    Some(_) = self.connections.join_next() => {}
                    accepted = listeners.accept() => self.serve_next(accepted).await,
                }
            }
            self.accept_waiting(listeners);
        }
        while running.join_next().await.is_some() {}
        while self.connections.join_next().await.is_some() {}
    }
}

/// Logs a failed `accept`, and waits before the next one.
async fn wait_after(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_AGAIN).await;
}
