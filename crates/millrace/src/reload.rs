//! Reading the settings again while the server runs (SIGHUP).
//!
//! All or nothing: settings that cannot be read, or do not go together, change nothing. What is taken
//! holds for what begins from then on; what needs a restart is named. The key file is read again in any
//! case, since its contents may have changed though its name has not.

use crate::args::ServeArgs;
use crate::bounds::server_config;
use crate::config::{Changes, Config};
use crate::keyring::Keyring;
use crate::library::Library;
use crate::logging::LogFilter;
use server::Reconfigure;
use std::sync::Arc;

/// The settings in force, and everything that follows them.
pub(crate) struct Reload {
    pub(crate) args: ServeArgs,
    pub(crate) config: Config,
    pub(crate) ring: Keyring,
    pub(crate) log: LogFilter,
    pub(crate) server: Reconfigure,
    /// Models that are loaded from now on, and the engines of those that are.
    pub(crate) library: Arc<Library>,
}

impl Reload {
    /// Reads everything again, and tells the log what came of it.
    pub(crate) fn again(&mut self) {
        if let Err(why) = self.settings() {
            tracing::error!("the settings stay as they were: {why}");
        }
        if !self.ring.has_file() {
            return;
        }
        match self.ring.reload() {
            Ok(keys) => tracing::info!(keys, "the key file was read again"),
            Err(why) => tracing::error!("the keys stay as they were: {why}"),
        }
    }

    /// How long running streams have when the server is told to stop.
    pub(crate) fn drain_timeout_ms(&self) -> u64 {
        self.config.settings.server.drain_timeout_ms
    }

    fn settings(&mut self) -> Result<(), String> {
        let new = self.args.settings().map_err(|why| why.to_string())?;
        let changes = Changes::between(&self.config, new)?;
        // What can fail comes first.
        self.log.set(&changes.config.settings.log.filter)?;
        let settings = &changes.config.settings;
        self.ring.follow(settings.keys.file.clone());
        self.server.apply(server_config(settings));
        self.library.follow(settings.clone());
        tracing::info!(
            "the settings were read again; changed: {}",
            list(&changes.live)
        );
        if !changes.restart.is_empty() {
            tracing::warn!("needs a restart: {}", list(&changes.restart));
        }
        self.config = changes.config;
        Ok(())
    }
}

fn list(keys: &[&str]) -> String {
    match keys {
        [] => "nothing".to_owned(),
        keys => keys.join(", "),
    }
}
