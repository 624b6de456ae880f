//! Findings about what a server opens: files, a port, directories.

use super::finding::Finding;
use super::machine::Machine;
use crate::config::Settings;
use crate::model_store::ModelStore;
use crate::packed_cache::PackedCache;
use std::io::ErrorKind;
use std::net::TcpListener;

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

/// Whether the address can be listened on.
pub(super) fn port(settings: &Settings) -> Finding {
    const SUBJECT: &str = "address";
    let bind = settings.server.bind;
    match TcpListener::bind(bind) {
        Ok(_) => Finding::good(SUBJECT, format!("{bind} is free")),
        Err(why) if why.kind() == ErrorKind::AddrInUse => {
            Finding::good(SUBJECT, format!("{bind} is in use")).wrong(
                "`millrace health` says whether that is a Millrace; --port takes another port",
            )
        }
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
    Some(match limit < needed {
        true => found.better(format!(
            "ulimit -n {needed}, or LimitNOFILE={needed} in a unit: connections beyond the limit are not accepted"
        )),
        false => found,
    })
}

/// The models of this machine, and where downloads go.
fn models(settings: &Settings) -> Finding {
    const SUBJECT: &str = "models";
    let count = ModelStore::names(settings).len();
    let directories = settings.models.directories();
    match directories.first() {
        Some(first) => Finding::good(
            SUBJECT,
            format!("{count} local models; `millrace pull` downloads to {}", first.display()),
        ),
        None => Finding::good(SUBJECT, format!("{count} local models")).better(
            "neither HOME nor XDG_CACHE_HOME is set: set models.directories, or `millrace pull` cannot download",
        ),
    }
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
    match cache.is_used() {
        true => Finding::good(
            SUBJECT,
            format!(
                "{files} models, {} of {} MiB (models.packed_cache_gib) in {shown}",
                bytes >> 20,
                cache.bytes_max() >> 20
            ),
        ),
        false => Finding::good(
            SUBJECT,
            format!(
                "not cached (models.packed_cache: off); {} MiB in {shown}",
                bytes >> 20
            ),
        ),
    }
}
