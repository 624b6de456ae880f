//! `millrace serve`: the whole house.

use crate::args::ServeArgs;
use crate::bounds::server_config;
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::loading::{self, Loaded};
use crate::logging;
use crate::reload::Reload;
use server::{ServedModel, Server};
use std::io::Write;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Serves until told to stop (SIGINT or SIGTERM), then lets running streams finish. SIGHUP reads the
/// settings and the key file again.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let config = args.settings()?;
    let log = logging::start(&config.settings)?;
    let ring = Keyring::open(&config).map_err(Failure::User)?;
    let settings = config.settings.clone();
    let loaded = loading::load(&settings)?;
    let runtime = server::io_runtime(settings.server.io_threads)?;
    let served = Arc::new(served(&loaded));
    let drained = runtime.block_on(async {
        let server = Server::bind(server_config(&settings), served)
            .map_err(|why| Failure::user(format!("server.bind {}: {why}", settings.server.bind)))?;
        let server = server.with_keys(Arc::clone(&ring.keys));
        let mut reload = Reload {
            args: args.clone(),
            ring,
            log,
            server: server.reconfigure(),
            engine: loaded.engine.clone(),
            config,
        };
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        announce(&loaded.name, server.local_addr())?;
        let told = async {
            loop {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => break,
                    _ = terminate.recv() => break,
                    _ = hangup.recv() => reload.again(),
                }
            }
            tracing::info!(
                "stopping: running streams have {} ms",
                reload.drain_timeout_ms()
            );
        };
        Ok::<_, Failure>(server.serve(told).await)
    })?;
    if drained.cut > 0 {
        tracing::warn!("{} connections were cut", drained.cut);
    }
    loaded.close();
    Ok(())
}

/// The one line on standard output: scripts read it to learn the port.
fn announce(name: &str, address: std::net::SocketAddr) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "millrace serves {name} at http://{address}")?;
    out.flush()?;
    Ok(())
}

fn served(loaded: &Loaded) -> ServedModel {
    ServedModel {
        id: loaded.name.clone(),
        created_unix_s: loading::now_unix_s(),
        tokenizer: Arc::clone(&loaded.tokenizer),
        template: Arc::clone(&loaded.template),
        engine: loaded.engine.clone(),
        steps: Arc::clone(&loaded.steps),
        context_max: loaded.context_max,
        eos: loaded.tokenizer.eos_ids().into(),
        token_pool: loaded.tokens.clone(),
        top_pool: loaded.tops.clone(),
    }
}
