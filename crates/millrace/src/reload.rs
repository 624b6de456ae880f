//! Reading the settings again while the server runs (SIGHUP).
//!
//! All or nothing: settings that cannot be read, or do not go together, change nothing. What is taken
//! holds for what begins from then on; what needs a restart is named. The key file is read again in any
//! case, since its contents may have changed though its name has not.

use crate::args::ServeArgs;
use crate::bounds::{server_config, tuning};
use crate::config::{Changes, Config};
use crate::keyring::Keyring;
use crate::logging::LogFilter;
use engine::Handle;
use server::Reconfigure;

/// The settings in force, and everything that follows them.
pub(crate) struct Reload {
    pub(crate) args: ServeArgs,
    pub(crate) config: Config,
    pub(crate) ring: Keyring,
    pub(crate) log: LogFilter,
    pub(crate) server: Reconfigure,
    /// `None` until the model is loaded.
    pub(crate) engine: Option<Handle>,
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

    /// The model is loaded: from now on its engine follows the settings, which may have changed meanwhile.
    pub(crate) fn follow(&mut self, engine: Handle) {
        engine.tune(tuning(&self.config.settings));
        self.engine = Some(engine);
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
        if let Some(engine) = &self.engine {
            engine.tune(tuning(settings));
        }
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
