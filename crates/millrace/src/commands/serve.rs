//! `millrace serve`: the whole house.

use crate::args::ServeArgs;
use crate::bounds::server_config;
use crate::config::Settings;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::loading::{self, Loaded, Place};
use crate::logging;
use crate::reload::Reload;
use server::{Loading, ServedModel, Server};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Serves until told to stop (SIGINT or SIGTERM), then lets running streams finish. SIGHUP reads the
/// settings and the key file again. The socket is bound first, and the model is loaded meanwhile: who
/// comes early is told how far it is.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let config = args.settings()?;
    let log = logging::start(&config.settings)?;
    let ring = Keyring::open(&config).map_err(Failure::User)?;
    let settings = config.settings.clone();
    let place = loading::find(&settings.model)?;
    let runtime = server::io_runtime(settings.server.io_threads)?;
    let bounds = server_config(&settings);
    #[cfg(feature = "otlp")]
    let bounds = crate::config::with_otlp(bounds, &config);
    let loaded = runtime.block_on(async {
        let (server, loading) = Server::bind_early(bounds, &place.name)
            .map_err(|why| Failure::user(format!("server.bind {}: {why}", settings.server.bind)))?;
        let server = server.with_keys(Arc::clone(&ring.keys));
        let reload = Reload {
            args: args.clone(),
            ring,
            log,
            server: server.reconfigure(),
            engine: None,
            config,
        };
        run(server, loading, place, settings, reload).await
    })?;
    if let Some(loaded) = loaded {
        loaded.close();
    }
    Ok(())
}

/// From bind to the last connection's end. Gives the model back, if it was loaded by then.
async fn run(
    server: Server,
    loading: Loading,
    place: Place,
    settings: Settings,
    mut reload: Reload,
) -> Result<Option<Loaded>, Failure> {
    let mut signals = Signals::new()?;
    let address = server.local_addr();
    say(&format!("millrace listens at http://{address}"))?;
    let name = place.name.clone();
    let loads = load(settings, place, loading)?;
    let mut outcome = Ok(None);
    let told = async {
        tokio::select! {
            // A model that is loaded is not forgotten for a signal that comes with it.
            biased;
            loaded = loads => outcome = ready(loaded, &name, address),
            () = signals.stop(&mut reload) => {}
        }
        if let Ok(Some(loaded)) = &outcome {
            reload.follow(loaded.engine.clone());
            signals.stop(&mut reload).await;
        }
        let drain_ms = reload.drain_timeout_ms();
        tracing::info!("stopping: running streams have {drain_ms} ms");
    };
    let drained = server.serve(told).await;
    if drained.cut > 0 {
        tracing::warn!("{} connections were cut", drained.cut);
    }
    outcome
}

/// Loads on a thread of its own. When the process ends before, the thread does.
fn load(
    settings: Settings,
    place: Place,
    loading: Loading,
) -> Result<oneshot::Receiver<Result<Loaded, Failure>>, Failure> {
    let (done, loads) = oneshot::channel();
    std::thread::Builder::new()
        .name("load".to_owned())
        .spawn(move || {
            let loaded = loading::load_from(&place, &settings, &mut |p| loading.progress(p));
            match &loaded {
                Ok(loaded) => loading.ready(Arc::new(served(loaded))),
                Err(_) => loading.failed(),
            }
            // Nobody listens when the process is about to end.
            let _ = done.send(loaded);
        })?;
    Ok(loads)
}

/// Says so, or why not.
fn ready(
    loaded: Result<Result<Loaded, Failure>, oneshot::error::RecvError>,
    name: &str,
    address: SocketAddr,
) -> Result<Option<Loaded>, Failure> {
    let loaded = loaded.map_err(|_| Failure::bug("the thread that loads the model panicked"))??;
    if let Err(why) = say(&format!("millrace serves {name} at http://{address}")) {
        tracing::warn!("nobody hears that requests are taken: {why}");
    }
    Ok(Some(loaded))
}

/// What the operator tells a running server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Ready when it is to stop. Reads everything again as often as it is told to until then.
    async fn stop(&mut self, reload: &mut Reload) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                _ = self.hangup.recv() => reload.again(),
            }
        }
    }
}

/// A line on standard output. There are two: the first tells scripts the port, the second that requests
/// are taken.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}

fn served(loaded: &Loaded) -> ServedModel {
    ServedModel {
        id: loaded.name.clone(),
        created_unix_s: loading::now_unix_s(),
        facts: loaded.facts.clone(),
        tokenizer: Arc::clone(&loaded.tokenizer),
        template: Arc::clone(&loaded.template),
        answers: loaded.answers,
        engine: loaded.engine.clone(),
        steps: Arc::clone(&loaded.steps),
        context_max: loaded.context_max,
        eos: loaded.tokenizer.eos_ids().into(),
        token_pool: loaded.tokens.clone(),
        top_pool: loaded.tops.clone(),
    }
}
