//! Reading the settings again while the server runs (SIGHUP).
//!
//! All or nothing: settings that cannot be read, or do not go together, change nothing. What is taken
//! holds for what begins from then on; what needs a restart is named. The key file is read again in any
//! case, since its contents may have changed though its name has not.
//!
//! A thread of its own (`reload`) does it: a file system that does not answer holds up no connection and no other signal.

use crate::args::ServeArgs;
use crate::bounds::server_config;
use crate::config::{Changes, Config};
use crate::failure::Failure;
use crate::keyring::Keyring;
use crate::library::Library;
use crate::logging::LogFilter;
use server::Reconfigure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::runtime::Handle;

/// Orders to read everything again that may wait, beside the one that is carried out: what comes meanwhile is read by it.
const ORDERS_MAX: usize = 1;

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

/// The thread that does it, from the outside.
pub(crate) struct Reloading {
    orders: SyncSender<()>,
    drain_timeout_ms: Arc<AtomicU64>,
}

impl Reloading {
    /// Starts it, inside the server's runtime.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start(reload: Reload) -> Result<Self, Failure> {
        let (orders, received) = sync_channel(ORDERS_MAX);
        let drain_timeout_ms = Arc::new(AtomicU64::new(reload.drain_timeout_ms()));
        let told = Arc::clone(&drain_timeout_ms);
        let inside = Handle::current();
        let thread = std::thread::Builder::new().name("reload".to_owned());
        let started = thread.spawn(move || {
            let _inside = inside.enter();
            reload.run(&received, &told);
        });
        started.map_err(|why| Failure::no_thread("reload", &why))?;
        Ok(Self {
            orders,
            drain_timeout_ms,
        })
    }

    /// Everything is to be read again.
    pub(crate) fn order(&self) {
        // Full: one that has not begun will see what this one would.
        let _ = self.orders.try_send(());
    }

    /// How long running streams have when the server is told to stop.
    pub(crate) fn drain_timeout_ms(&self) -> u64 {
        self.drain_timeout_ms.load(Ordering::Relaxed)
    }
}

impl Reload {
    fn run(mut self, orders: &Receiver<()>, drain_timeout_ms: &AtomicU64) {
        while orders.recv().is_ok() {
            self.again();
            drain_timeout_ms.store(self.drain_timeout_ms(), Ordering::Relaxed);
        }
    }

    /// Reads everything again, and tells the log what came of it.
    fn again(&mut self) {
        if let Err(why) = self.settings() {
            tracing::error!("the settings were not reloaded: {why}");
        }
        if !self.ring.has_file() {
            return;
        }
        match self.ring.reload() {
            Ok(keys) => tracing::info!(keys, "the key file was reloaded"),
            Err(why) => tracing::error!("the key file was not reloaded: {why}"),
        }
    }

    fn drain_timeout_ms(&self) -> u64 {
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
        self.library.apply_settings(settings.clone());
        tracing::info!(
            "the settings were reloaded; changed: {}",
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
