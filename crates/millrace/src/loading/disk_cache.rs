//! The prompt cache on disk of an engine.

use crate::config::Settings;
use engine::{DiskCacheConfig, Engine};
use server::ModelIdentity;

/// Opens the prompt cache on disk, where the settings have one. Without it the engine works as well, so a directory that cannot
/// be used is a warning.
pub(super) fn cache_on_disk(engine: &mut Engine, identity: &ModelIdentity, settings: &Settings) {
    let Some(bytes_max) = settings.cache.disk_bytes() else {
        return;
    };
    let Some(directory) = settings.cache.directory() else {
        tracing::warn!(
            "no prompt cache on disk: neither cache.disk_directory, XDG_CACHE_HOME nor HOME names a directory"
        );
        return;
    };
    let shown = directory.display().to_string();
    let opened = engine.cache_on_disk(DiskCacheConfig {
        directory,
        bytes_max,
        identity: identity_text(identity),
        warn: Box::new(|why| tracing::warn!("prompt cache on disk: {why}")),
    });
    match opened {
        Ok(()) => tracing::info!(
            directory = shown,
            bytes_max,
            "prefixes of prompts are kept on disk"
        ),
        Err(why) => tracing::warn!("no prompt cache on disk (cache.disk_gib): {why}"),
    }
}

/// Everything beside tokens that decides the bits of keys and values, and this program's version, since the layout of a page
/// may differ between versions. The identity of the weights has the adapters.
fn identity_text(identity: &ModelIdentity) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (weights, arithmetic) = (&identity.weights, &identity.arithmetic);
    format!("millrace {version}; weights {weights}; {arithmetic}")
}
