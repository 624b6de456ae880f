//! Findings about what a server opens: files, a port, directories.

use super::Finding;
use super::compute::Machine;
use crate::commands::running_server::RunningServer;
use crate::config::Settings;
use crate::model_store::ModelStore;
use crate::packed_cache::PackedCache;
use serde::Deserialize;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

/// Time for a running server to answer: it is on this machine.
const PATIENCE: Duration = Duration::from_secs(2);
/// The route of a process that works, which needs no key.
const LIVENESS: &str = "/health/liveness";

/// Response of that route; other fields are ignored.
#[derive(Deserialize)]
struct Liveness {
    status: String,
}

/// Files of a server beside its connections: models, journal, logs, connections to other servers.
const OTHER_FILES: u64 = 64;

/// All findings that bear on serving.
pub(super) fn findings(machine: &Machine, settings: &Settings) -> Vec<Finding> {
    let mut found = vec![port(settings)];
    found.extend(open_files(machine, settings));
    found.push(models(settings));
    found.push(packed_cache(settings));
    found
}

/// The URL of the Millrace that serves at the address of the settings; `None`: another program does, or it is stuck.
fn own_server(settings: &Settings) -> Option<String> {
    let server = RunningServer::of_settings(settings, PATIENCE);
    let liveness: Liveness = server.get(LIVENESS).ok()?;
    (liveness.status == "ok").then(|| server.url().to_owned())
}

/// Whether the address can be listened on.
pub(super) fn port(settings: &Settings) -> Finding {
    const SUBJECT: &str = "address";
    let bind = settings.server.bind;
    match TcpListener::bind(bind) {
        Ok(_) => Finding::good(SUBJECT, format!("{bind} is free")),
        Err(why) if why.kind() == ErrorKind::AddrInUse => match own_server(settings) {
            Some(url) => Finding::good(SUBJECT, format!("a running Millrace serves at {url}")),
            None => Finding::good(SUBJECT, format!("{bind} is in use"))
                .wrong("no Millrace answers there (`millrace health`); --port takes another port"),
        },
        Err(why) => Finding::good(SUBJECT, format!("{bind}: {why}"))
            .wrong("--host takes an address of this machine, --port a port from 1024 on"),
    }
}

/// Whether the connections of the settings can be open at the same time.
pub(super) fn open_files(machine: &Machine, settings: &Settings) -> Option<Finding> {
    let limit = machine.open_files_max()?;
    let connections = settings.server.connections_max as u64;
    let needed = connections.saturating_add(OTHER_FILES);
    let found = Finding::good(
        "open files",
        format!(
            "at most {limit}; {connections} connections (server.connections_max) and {OTHER_FILES} others"
        ),
    );
    Some(if limit < needed {
        found.better(format!(
            "ulimit -n {needed}, or LimitNOFILE={needed} in a unit: connections beyond the limit are not accepted"
        ))
    } else {
        found
    })
}

/// The models of this machine, and where downloads go.
fn models(settings: &Settings) -> Finding {
    const SUBJECT: &str = "models";
    let count = ModelStore::names(settings).len();
    let Some(first) = settings.models.directories().into_iter().next() else {
        return Finding::good(SUBJECT, counted(count)).better(
            "neither HOME nor XDG_DATA_HOME is set: set models.directories, or `millrace pull` cannot download",
        );
    };
    let first = first.display();
    let found = Finding::good(
        SUBJECT,
        format!("{}; `millrace pull` downloads to {first}", counted(count)),
    );
    if let Some(absent) = settings.models.absent_directory() {
        let absent = absent.display();
        return found.wrong(format!(
            "there is no directory {absent}: create it, or change models.directories"
        ));
    }
    let skipped = ModelStore::without_start(settings).skipped_links();
    match (skipped.first(), settings.models.directory_in_cache()) {
        (Some(link), _) => found.better(match skipped.len() {
            1 => link.to_string(),
            count => format!("{link}, and {} more (`millrace list`)", count - 1),
        }),
        (None, Some(_)) => found.better(
            "programs that clean caches remove these models: move the folder to ~/.local/share/millrace/models \
             ($XDG_DATA_HOME), where new ones go without it",
        ),
        (None, None) => found,
    }
}

fn counted(models: usize) -> String {
    let word = if models == 1 { "model" } else { "models" };
    format!("{models} local {word}")
}

/// The cache of packed weights, and how full it is.
fn packed_cache(settings: &Settings) -> Finding {
    const SUBJECT: &str = "packed weights";
    let Some(cache) = PackedCache::of(settings) else {
        return Finding::good(SUBJECT, "not cached").better(
            "neither HOME nor XDG_CACHE_HOME is set: set models.packed_cache_directory, or each start packs all weights",
        );
    };
    let (files, bytes) = cache.usage();
    let shown = cache.path().display();
    if cache.is_used() {
        Finding::good(
            SUBJECT,
            format!(
                "{files} models, {} of {} MiB (models.packed_cache_gib) in {shown}",
                bytes >> 20,
                cache.bytes_max() >> 20
            ),
        )
    } else {
        Finding::good(
            SUBJECT,
            format!(
                "not cached (models.packed_cache: off); {} MiB in {shown}",
                bytes >> 20
            ),
        )
    }
}
