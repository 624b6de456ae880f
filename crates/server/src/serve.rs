//! The server, from binding the address to the end of the last connection.
//!
//! The I/O threads.
//!
//! All threads are created before the server listens. Tokio creates worker threads in [`Builder::build`], which
//! panics if the system refuses the first thread and continues silently if the system refuses another. Tokio creates
//! blocking threads on demand, and a task whose thread is refused never runs. Therefore the number of threads is
//! tried first, and the threads for long prompts are started at once and kept.

use crate::accept_loop::{AcceptLoop, Drained, Listeners};
use crate::access::authentication::Authentication;
use crate::access::origins::HostAllowList;
use crate::app::App;
use crate::config::live_config::LiveConfig;
use crate::config::reconfigure::Reconfigure;
use crate::config::server_config::ServerConfig;
use crate::connection::client_socket::{self, UnixSocket};
use crate::connection::connection_limiter::ConnectionLimiter;
use crate::connection::tls::{TlsCertificate, TlsSlot};
use crate::metrics::watch_demand;
use crate::router::build_router;
use crate::routes::stream_feed;
use cluster::executor::DecodeImages;
use cluster::messages::{OwnedStreams, Role};
use cluster::names::InstanceId;
use cluster::node::ClusterNode;
use cluster::records::RecordsDriver;
use cluster::secret::ClusterSecret;
use gateway::keys::Keys;
use gateway::limits::LiveLimits;
use gateway::models::{self, Library, Loading, ModelRegistry, ServedModel};
use gateway::recovery::StartingJournal;
use gateway::recovery::starting_journal::{hold_requests, recover_streams};
use gateway::remote_images::RemoteImages;
use gateway::requested_images::decode_for_gateways;
use gateway::stream_owners::{RecordsSetup, start_records};
use gateway::streams::{JournalSlot, StreamFeed, StreamJournal};
use gateway::takeover::take_over_orphans;
use gateway::webhooks::{WebhookSecrets, run_deliveries};
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use std::{io, thread};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet};
use upstream::UpstreamStatus;

/// Time that the journal may take to write the seal.
const JOURNAL_STOP_MAX: Duration = Duration::from_secs(10);

/// A server that is bound to an address and does not serve yet.
pub struct Server {
    listeners: Listeners,
    tls: TlsSlot,
    local: SocketAddr,
    app: App,
    limiter: Arc<ConnectionLimiter>,
    hosts: Arc<RwLock<HostAllowList>>,
    keys: Arc<Keys>,
    journal: Option<StartingJournal>,
}

impl Server {
    /// Binds the address for a loaded model. Must be called inside a tokio runtime (see [`crate::io_runtime`]).
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(config: ServerConfig, served: Arc<ServedModel>) -> io::Result<Self> {
        let (server, loading) = Self::bind_early(config, &served.id)?;
        loading.model_ready(served);
        Ok(server)
    }

    /// Binds the address before the model of this name is loaded. Until [`Loading::model_ready`], requests are rejected
    /// with the progress of loading. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind_early(config: ServerConfig, name: &str) -> io::Result<(Self, Loading)> {
        let listener = client_socket::open_listener(&config)?;
        let local = listener.local_addr()?;
        let limiter = ConnectionLimiter::new(config.connections_max, config.connections_per_ip_max);
        let hosts = Arc::new(RwLock::new(HostAllowList::new(local, &config.hosts)));
        let limits = Arc::new(LiveLimits::new(config.gateway_limits()));
        let config = Arc::new(LiveConfig::new(config));
        let models = ModelRegistry::new(name.to_owned(), Arc::clone(&limits));
        let models = Arc::new(models);
        let loading = models.begin_load(models.first_entry());
        let app = App::new(config, limits, models);
        let server = Self {
            listeners: Listeners {
                tcp: listener,
                unix: None,
            },
            tls: TlsSlot::default(),
            local,
            app,
            limiter,
            hosts,
            keys: Arc::new(Keys::anonymous()),
            journal: None,
        };
        Ok((server, loading))
    }

    /// Requires one of these API keys. Without this call, every caller is accepted.
    #[must_use]
    pub fn with_keys(self, keys: Arc<Keys>) -> Self {
        Self { keys, ..self }
    }

    /// Encrypts TCP connections with this certificate, which may be replaced while the server runs.
    #[must_use]
    pub fn with_tls(self, certificate: TlsCertificate) -> Self {
        self.tls.set(certificate);
        self
    }

    /// Listens on a Unix socket, too. Who may connect is decided by the permissions of its file: this mode, or what the
    /// process's umask leaves.
    ///
    /// # Errors
    /// Another server listens there, another file is there, or the socket cannot be made.
    pub fn with_unix_socket(mut self, path: &Path, mode: Option<u32>) -> io::Result<Self> {
        self.listeners.unix = Some(UnixSocket::open(path, mode)?);
        Ok(self)
    }

    /// Fails the liveness probe while this says that an engine is stuck. To be called once.
    #[must_use]
    pub fn with_stall_watch(
        self,
        stall: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.app.lifecycle.watch_stalls(Box::new(stall));
        self
    }

    /// Adds the models of a model store; each is loaded on the first request for that model.
    #[must_use]
    pub fn with_library(self, library: Arc<dyn Library>) -> Self {
        self.app.models.set_library(library);
        self
    }

    /// Takes part in a cluster: readiness depends on the engines of other processes where this one has none, and an engine
    /// answers only paths for operators. To be called once.
    #[must_use]
    pub fn with_cluster(self, node: Arc<ClusterNode>) -> Self {
        let watched = Arc::clone(&node);
        let problem = Box::new(move || watched.problem());
        self.app.lifecycle.watch_engines(problem);
        if node.role() != Role::Engine {
            let streams = Arc::clone(&self.app.gateway.generations.streams);
            node.count_streams(move || {
                let counts = streams.registry().counts();
                OwnedStreams {
                    open: counts.open as u64,
                    retained: counts.retained as u64,
                }
            });
        }
        let membership = node.membership().config();
        let (id, secret) = (membership.id, membership.secret.clone());
        let _ = self.app.cluster.set(node);
        match secret {
            Some(secret) => self.with_gateway_secret(id, secret),
            None => self,
        }
    }

    /// Decodes images of other gateways' requests, within the bounds of this server's own.
    pub fn image_decoder(&self) -> DecodeImages {
        decode_for_gateways(&self.app.gateway.generations)
    }

    /// Is believed by the other gateways with this secret, and believes them. To be called once.
    #[must_use]
    pub fn with_gateway_secret(self, id: InstanceId, secret: ClusterSecret) -> Self {
        self.app.gateway.generations.ids.set_gateway(id.number());
        self.app.peer_calls.peers.set_trust(id, secret);
        self
    }

    /// Has third-party servers compute the tokens: readiness depends on them. To be called once, and not in a cluster.
    #[must_use]
    pub fn with_upstreams(self, status: Arc<UpstreamStatus>) -> Self {
        let watched = Arc::clone(&status);
        let problem = Box::new(move || watched.problem());
        self.app.lifecycle.watch_engines(problem);
        let _ = self.app.sources.upstreams.set(status);
        self
    }

    /// Continues the streams of a journal, and records resumable streams there. The journal is read while the server
    /// serves; until then, requests that may concern a stream wait. To be called before the first model is ready.
    #[must_use]
    pub fn with_journal(self, journal: StartingJournal) -> Self {
        hold_requests(&self.app.gateway);
        Self {
            journal: Some(journal),
            ..self
        }
    }

    /// The journal of the settings cannot be used, for this reason, which `/health` has.
    #[must_use]
    pub fn without_journal(self, why: String) -> Self {
        self.app.gateway.generations.journal.fail(why);
        self
    }

    /// Records resumable streams in a journal that was read before.
    #[must_use]
    pub fn with_stream_journal(self, journal: Arc<StreamJournal>) -> Self {
        self.app.gateway.generations.journal.set(journal);
        self
    }

    /// Stores the records of this gateway's streams for the other gateways of a cluster, and finds the others' streams. The
    /// journal has the tap of the same replicator. To be called after the keys were set, and inside a tokio runtime.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn start_records(&self, setup: RecordsSetup) -> Result<RecordsDriver, String> {
        start_records(&self.app.gateway, Arc::clone(&self.keys), setup).await
    }

    /// Signs events for webhooks with these secrets, which may be replaced while the server runs.
    #[must_use]
    pub fn with_webhook_secrets(self, secrets: Arc<WebhookSecrets>) -> Self {
        self.app.gateway.outbox.set_secrets(secrets);
        self
    }

    /// Fetches images that requests name by addresses of other servers. To be called once.
    #[must_use]
    pub fn with_remote_images(self, images: RemoteImages) -> Self {
        let _ = self.app.gateway.generations.images.remote.set(images);
        self
    }

    /// The feed of state changes, for the journal.
    pub fn stream_feed(&self) -> StreamFeed {
        self.app.feed.clone()
    }

    /// A handle that changes limits and timeouts of the running server.
    pub fn reconfigure(&self) -> Reconfigure {
        Reconfigure {
            app: self.app.clone(),
            limiter: Arc::clone(&self.limiter),
            hosts: Arc::clone(&self.hosts),
            tls: self.tls.clone(),
            local: self.local,
        }
    }

    /// The address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The services alone, without the socket.
    #[cfg(fuzzing)]
    pub(crate) fn into_services(self) -> (App, Authentication) {
        (self.app, Authentication::new(self.keys, self.hosts))
    }

    /// Serves until `shutdown` is ready, then shuts down gracefully: requests of new connections are rejected (in a cluster no
    /// connection is accepted), idle connections are closed (one without a request yet is given a moment to send it), and the engine ends streams that still run after `drain`. These streams end with an
    /// error; then connections have `drain_flush` to send their last bytes.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Drained {
        let Self {
            listeners,
            tls,
            app,
            limiter,
            hosts,
            keys,
            journal,
            local: _,
        } = self;
        let recovery = journal.map(|journal| start_recovery(journal, &app, &keys));
        let mut watchers = start_watchers(&app);
        let models = Arc::clone(&app.models);
        let loader = models.library().map(|library| {
            tokio::spawn(models::run_loader(Arc::clone(&models), Arc::clone(library)))
        });
        // The drop of the registry's streams ends their retention in the journal, unless the journal was stopped before.
        let services = app.clone();
        let journal = Arc::clone(&app.gateway.generations.journal);
        watchers.spawn(gateway::streams::watch_journal(Arc::clone(&journal)));
        let authentication = Authentication::new(keys, hosts);
        let router = build_router(app.clone(), authentication);
        let accept_loop = AcceptLoop::new(router, app, limiter, tls);
        let (accept_loop, listeners) = accept_loop.accept_until(listeners, shutdown).await;
        let drained = accept_loop.drain_connections(listeners).await;
        watchers.abort_all();
        stop_journal(&journal).await;
        // Streams that are not submitted yet are left to the next process.
        if let Some(recovery) = recovery {
            recovery.abort();
        }
        drop(services);
        if let Some(loader) = loader {
            loader.abort();
            let released = tokio::task::spawn_blocking(move || models.release_bytes());
            // The loader has logged the panic of an engine already.
            let _ = released.await;
        }
        drained
    }
}

/// Tasks that look at the streams and the metrics from time to time.
fn start_watchers(app: &App) -> JoinSet<()> {
    let (sources, config) = (&app.sources, &app.config);
    let mut watchers = JoinSet::new();
    watchers.spawn(Arc::clone(&sources.streams).sweep_expired());
    watchers.spawn(stream_feed::export_snapshots(
        sources.clone(),
        app.feed.clone(),
        Arc::clone(config),
    ));
    watchers.spawn(watch_demand(sources.clone(), Arc::clone(config)));
    watchers.spawn(take_over_orphans(app.gateway.clone()));
    watchers.spawn(run_deliveries(Arc::clone(&app.gateway.outbox)));
    watchers
}

/// Continues the streams of a journal in a task.
fn start_recovery(journal: StartingJournal, app: &App, keys: &Arc<Keys>) -> JoinHandle<()> {
    let (gateway, keys) = (app.gateway.clone(), Arc::clone(keys));
    tokio::spawn(async move { recover_streams(journal, gateway, keys).await.run().await })
}

/// Seals the journal, so that the next process knows that this one did not die. A disk that hangs does not keep the
/// process.
async fn stop_journal(journal: &JournalSlot) {
    let Some(journal) = journal.get().map(Arc::clone) else {
        return;
    };
    let (stopped, is_stopped) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("journal-stop".to_owned());
    let stopping = thread.spawn(move || {
        journal.stop();
        let _ = stopped.send(());
    });
    let is_stopped = tokio::time::timeout(JOURNAL_STOP_MAX, is_stopped);
    if stopping.is_err() || is_stopped.await.is_err() {
        tracing::error!("the journal could not be sealed: the disk does not answer");
    }
}

/// Threads for long prompts, in addition to the I/O threads.
const PREPARE_THREADS: usize = 2;
/// Idle time after which a thread for long prompts ends: longer than any server runs.
const PREPARE_THREAD_STAYS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Time that the threads for long prompts may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(10);

/// A runtime of `threads` I/O threads and two threads for long prompts, all named `io-*`. Their number does not
/// depend on connections or streams.
///
/// # Errors
/// The system cannot create the threads or the event queue.
pub fn io_runtime(threads: usize) -> io::Result<Runtime> {
    let threads = threads.max(1);
    try_threads(threads + PREPARE_THREADS)?;
    let next = AtomicUsize::new(0);
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(PREPARE_THREADS)
        .thread_keep_alive(PREPARE_THREAD_STAYS)
        .thread_name_fn(move || format!("io-{}", next.fetch_add(1, Ordering::Relaxed)))
        .enable_io()
        .enable_time()
        .build()?;
    start_prepare_threads(&runtime)?;
    Ok(runtime)
}

/// Starts `count` threads at the same time, and ends them.
fn try_threads(count: usize) -> io::Result<()> {
    thread::scope(|scope| {
        // The threads end when this vector is dropped: after the last one has started, or after a failure.
        let mut hold = Vec::with_capacity(count);
        for started in 0..count {
            let (release, released) = sync_channel::<()>(0);
            let thread = thread::Builder::new().name("io-trial".to_owned());
            let tried = thread.spawn_scoped(scope, move || {
                let _ = released.recv();
            });
            tried.map_err(|why| no_threads(started, count, &why))?;
            hold.push(release);
        }
        Ok(())
    })
}

/// Starts the threads for long prompts: each begins a task, and no task ends before all have begun.
fn start_prepare_threads(runtime: &Runtime) -> io::Result<()> {
    let (begun, begins) = sync_channel(PREPARE_THREADS);
    let mut hold = Vec::with_capacity(PREPARE_THREADS);
    for _ in 0..PREPARE_THREADS {
        let begun = begun.clone();
        let (release, released) = sync_channel::<()>(0);
        runtime.spawn_blocking(move || {
            let _ = begun.send(());
            let _ = released.recv();
        });
        hold.push(release);
    }
    for started in 0..PREPARE_THREADS {
        let begin = begins.recv_timeout(START_TIME_MAX);
        begin.map_err(|why: RecvTimeoutError| no_threads(started, PREPARE_THREADS, &why))?;
    }
    Ok(())
}

fn no_threads(started: usize, count: usize, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!(
        "the system started {started} of {count} I/O threads: {why} (server.io_threads sets the number; the limit is that of \
         processes, ulimit -u, or pids.max of the control group)"
    ))
}
