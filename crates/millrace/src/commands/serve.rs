//! `millrace serve`: the server with its models, keys and signals.

use crate::args::ServeArgs;
use crate::bounds::server_config;
use crate::cluster_node::{self, JoinedCluster};
use crate::config::{ClusterRole, Settings};
use crate::failure::Failure;
use crate::journal_opening::{OpenedJournal, lock_journal, open_blobs};
use crate::key_file::Keyring;
use crate::library::Library;
use crate::liveness::{NotifySocket, StallWatch};
use crate::model_lookup::{StartModel, expect_directories, find_start_model};
use crate::model_store::ModelStore;
use crate::signals::{Reload, Reloading, ServerSignals};
use crate::upstreams::{UsedUpstreams, use_upstreams};
use crate::{loading, logging};
use server::{Loading, Server, StartingJournal, TlsCertificate};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Stands for the name of a gateway's model until an engine announces one.
const UNKNOWN_MODEL: &str = "(a model of the engines)";

/// Serves until SIGINT or SIGTERM, then lets running streams finish. SIGHUP reads the settings and the key file again.
/// The socket is bound after the check of the model's header and of the journal; while the model is loaded, early clients get the progress
/// of the load.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let config = args.settings()?;
    let log = logging::start_for_server(&config.settings)?;
    logging::tell_ignored(&config);
    let ring = Keyring::open(&config).map_err(Failure::User)?;
    let settings = config.settings.clone();
    expect_directories(&config)?;
    let start = start_model(&settings)?;
    let journal = match settings.cluster.role {
        // An engine owns no streams.
        ClusterRole::Engine => OpenedJournal::Off,
        ClusterRole::All | ClusterRole::Gateway => lock_journal(&settings)?,
    };
    let name = served_name(start.as_ref());
    let certificate = settings.listener.certificate().map_err(Failure::User)?;
    let runtime = server::io_runtime(settings.server.io_threads)?;
    let bounds = server_config(&settings);
    runtime.block_on(async {
        let (server, loading) = Server::bind_early(bounds, &name)
            .map_err(|why| Failure::user(format!("server.bind {}: {why}", settings.server.bind)))?;
        let cluster =
            cluster_node::join(&settings, server.local_addr(), Arc::clone(&ring.keys)).await?;
        let upstreams = use_upstreams(&settings)?;
        let library = Library::new(settings.clone(), start)
            .with_cluster(cluster.clone())
            .with_upstreams(upstreams.clone());
        let library = Arc::new(library);
        let mut server = listen(server, &settings, certificate)?
            .with_keys(Arc::clone(&ring.keys))
            .with_webhook_secrets(Arc::clone(&ring.webhook_secrets));
        // The model of an engine stays loaded: others count on it. With upstreams nothing is computed here.
        let is_alone = cluster.as_ref().is_none_or(JoinedCluster::is_gateway);
        let loads_models = is_alone && upstreams.is_none();
        library.check_vision_proxies(loads_models)?;
        if loads_models {
            server = server.with_library(Arc::clone(&library) as Arc<dyn server::Library>);
        }
        if let Some(watch) = StallWatch::start(&settings, &library) {
            server = server.with_stall_watch(move || watch.problem());
        }
        server = with_outside(server, &settings, upstreams.as_ref());
        let server = connect(server, &settings, journal, cluster.as_ref()).await?;
        let reload = Reload {
            args: args.clone(),
            ring,
            log,
            server: server.reconfigure(),
            library: Arc::clone(&library),
            config,
        };
        let reloading = Reloading::start(reload)?;
        let running = ServedProcess {
            library,
            scheme: settings.listener.scheme(),
            prefix: &settings.server.api_prefix,
            has_page: settings.server.page && settings.cluster.role != ClusterRole::Engine,
            reloading: &reloading,
            cluster,
            upstreams,
        };
        running.run(server, loading).await
    })
}

/// The name under which the server starts.
fn served_name(start: Option<&StartModel>) -> String {
    start.map_or_else(
        || UNKNOWN_MODEL.to_owned(),
        |start| start.source.name.clone(),
    )
}

/// The model to start with, with a header that was checked; `None`: the engines of a gateway decide.
fn start_model(settings: &Settings) -> Result<Option<StartModel>, Failure> {
    for skipped in ModelStore::without_start(settings).skipped_links() {
        tracing::warn!("{skipped}");
    }
    let is_given = settings.model.path.is_some() || settings.model.name.is_some();
    if settings.cluster.role == ClusterRole::Gateway && !is_given {
        tracing::info!("no model was given: waiting for the first model of an engine");
        return Ok(None);
    }
    let start = find_start_model(settings)?;
    loading::check_header(&start.source, &settings.of_model(&start.source.name))?;
    Ok(Some(start))
}

/// The server with its certificate and its Unix socket.
fn listen(
    mut server: Server,
    settings: &Settings,
    certificate: Option<TlsCertificate>,
) -> Result<Server, Failure> {
    if let Some(certificate) = certificate {
        server = server.with_tls(certificate);
    }
    match &settings.listener.unix_socket {
        None => Ok(server),
        Some(path) => {
            let mode = settings.listener.mode().map_err(Failure::User)?;
            server.with_unix_socket(path, mode).map_err(|why| {
                let why = match why.kind() {
                    ErrorKind::InvalidInput => format!(
                        "the path has {} bytes, more than that of a socket may have",
                        path.as_os_str().len()
                    ),
                    _ => why.to_string(),
                };
                Failure::user(format!("listener.unix_socket {}: {why}", path.display()))
            })
        }
    }
}

/// The server with what it asks other servers for: answers of upstreams, images at addresses.
fn with_outside(
    mut server: Server,
    settings: &Settings,
    upstreams: Option<&UsedUpstreams>,
) -> Server {
    if let Some(upstreams) = upstreams {
        server = server.with_upstreams(Arc::clone(&upstreams.status));
    }
    match settings.remote_images() {
        Some(images) => server.with_remote_images(images),
        None => server,
    }
}

/// The server with its journal, and in its cluster.
async fn connect(
    mut server: Server,
    settings: &Settings,
    journal: OpenedJournal,
    cluster: Option<&JoinedCluster>,
) -> Result<Server, Failure> {
    let mut tap = None;
    let has_journal = matches!(journal, OpenedJournal::Locked(_));
    if let Some(cluster) = cluster {
        server = server.with_cluster(Arc::clone(&cluster.node));
        cluster.decode_images_by(server.image_decoder());
        // An engine owns no streams.
        if settings.cluster.role != ClusterRole::Engine {
            let started = cluster.start_records(settings, &server, has_journal);
            tap = Some(started.await?);
        }
    }
    Ok(match journal {
        OpenedJournal::Locked(locked) => {
            let starting = StartingJournal::with_tap(locked, tap);
            server.with_journal(match open_blobs(settings) {
                Some(blobs) => starting.with_blobs(blobs),
                None => starting,
            })
        }
        OpenedJournal::Failed(why) => server.without_journal(why),
        OpenedJournal::Off => server,
    })
}

/// Parts of a running server beside its sockets.
struct ServedProcess<'a> {
    library: Arc<Library>,
    scheme: &'static str,
    /// The prefix of all paths, or ''.
    prefix: &'a str,
    has_page: bool,
    reloading: &'a Reloading,
    cluster: Option<JoinedCluster>,
    upstreams: Option<UsedUpstreams>,
}

impl ServedProcess<'_> {
    fn name(&self) -> &str {
        self.library.started_name().unwrap_or(UNKNOWN_MODEL)
    }

    /// Runs the server from bind to the end of the last connection.
    async fn run(self, server: Server, loading: Loading) -> Result<(), Failure> {
        let mut signals = ServerSignals::new()?;
        let reload = || self.reloading.order();
        let (scheme, prefix) = (self.scheme, self.prefix);
        let url = format!("{scheme}://{}{prefix}", server.local_addr());
        print_lines(&format!("millrace listens at {url}"));
        let manager = NotifySocket::from_env();
        let loads = spawn_load(Arc::clone(&self.library), loading)?;
        let mut outcome = Ok(());
        let served = async {
            let is_ready = tokio::select! {
                // A failed load is reported even if a signal arrives at the same time.
                biased;
                loaded = loads => {
                    outcome = report_ready(loaded, self.name(), &url, self.has_page);
                    outcome.is_ok()
                }
                () = signals.stop(reload) => false,
            };
            if is_ready {
                if let Some(manager) = &manager {
                    manager.ready(&format!("serves {} at {url}", self.name()));
                    manager.start_watchdog(&self.library);
                }
                signals.stop(reload).await;
            }
            if let Some(manager) = &manager {
                manager.stopping(Duration::from_millis(self.reloading.drain_timeout_ms()));
            }
            let drain_ms = self.reloading.drain_timeout_ms();
            tracing::info!("shutting down: running streams have {drain_ms} ms to end");
            // A gateway leaves when it has handed its streams over.
            let engine = self
                .cluster
                .as_ref()
                .filter(|cluster| !cluster.has_gateway());
            if let Some(engine) = engine {
                engine.node.leave().await;
            }
        };
        let drained = server.serve(served).await;
        if let Some(cluster) = &self.cluster {
            cluster.finish().await;
        }
        if let Some(upstreams) = &self.upstreams {
            upstreams.finish().await;
        }
        if drained.cut > 0 {
            tracing::warn!(
                "{} connections were closed before they were done",
                drained.cut
            );
        }
        outcome
    }
}

/// Loads the model on a separate thread, which ends with the process.
fn spawn_load(
    library: Arc<Library>,
    loading: Loading,
) -> Result<oneshot::Receiver<Result<(), Failure>>, Failure> {
    let (done, loads) = oneshot::channel();
    std::thread::Builder::new()
        .name("load".to_owned())
        .spawn(move || {
            let loaded = library.load_started(&mut |progress| loading.report_progress(progress));
            // The receiver is gone when the process is about to end.
            let _ = done.send(match loaded {
                Ok(loaded) => {
                    loading.model_loaded(loaded);
                    Ok(())
                }
                Err(why) => {
                    loading.load_failed();
                    Err(why)
                }
            });
        })
        .map_err(|why| Failure::no_thread("load", &why))?;
    Ok(loads)
}

/// Prints that the server is ready, or returns why the load failed. Scripts read two lines: the first has the port, the
/// second means that requests are accepted. A third one, for people, says where the page is.
fn report_ready(
    loaded: Result<Result<(), Failure>, oneshot::error::RecvError>,
    name: &str,
    url: &str,
    has_page: bool,
) -> Result<(), Failure> {
    loaded.map_err(|_| Failure::bug("the thread that loads the model panicked"))??;
    let page = if has_page {
        format!("\nfor a browser: {url}/")
    } else {
        String::new()
    };
    print_lines(&format!("millrace serves {name} at {url}{page}"));
    Ok(())
}

/// Prints lines on standard output. A server does without one.
fn print_lines(lines: &str) {
    if let Err(why) = logging::print_lines(lines) {
        tracing::warn!("cannot write to standard output: {why}");
    }
}
