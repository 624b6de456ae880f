//! Signals of the operating system. Windows has Ctrl-C only: a server there is ended by it, and reads its settings once.
//!
//! # Reload
//! SIGHUP makes a running server read its settings again.
//! All or nothing: settings that cannot be read or contradict each other change nothing. New values apply to later
//! requests; settings that need a restart are listed in the log. The key file is read again in any case, since the
//! content may have changed under an unchanged name.
//!
//! Reloading has a separate thread (`reload`), so that a file system that hangs delays no connection and no signal.

use crate::args::ServeArgs;
use crate::bounds::server_config;
use crate::config::{Changes, Config};
use crate::failure::Failure;
use crate::key_file::Keyring;
use crate::library::Library;
use crate::logging::LogFilter;
use server::Reconfigure;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::runtime::Handle;

#[cfg(unix)]
mod of_system {
    use super::io;
    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// What is asked of a running server.
    pub(crate) struct ServerSignals {
        interrupt: Signal,
        terminate: Signal,
        hangup: Signal,
    }

    /// Ctrl-C (SIGINT).
    pub(crate) struct Interrupt(Signal);

    impl ServerSignals {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: signal(SignalKind::hangup())?,
            })
        }

        /// Resolves at SIGINT or SIGTERM. Calls `reload` at every SIGHUP until then.
        pub(crate) async fn stop(&mut self, reload: impl Fn()) {
            loop {
                tokio::select! {
                    _ = self.interrupt.recv() => return,
                    _ = self.terminate.recv() => return,
                    _ = self.hangup.recv() => reload(),
                }
            }
        }
    }

    impl Interrupt {
        pub(crate) fn new() -> io::Result<Self> {
            signal(SignalKind::interrupt()).map(Self)
        }

        /// Resolves at the next one; `None`: there will be none.
        pub(crate) async fn next(&mut self) -> Option<()> {
            self.0.recv().await
        }
    }
}

#[cfg(windows)]
mod of_system {
    use super::io;
    use tokio::signal::windows::{CtrlC, ctrl_c};

    /// What is asked of a running server.
    pub(crate) struct ServerSignals(CtrlC);

    /// Ctrl-C.
    pub(crate) struct Interrupt(CtrlC);

    impl ServerSignals {
        pub(crate) fn new() -> io::Result<Self> {
            ctrl_c().map(Self)
        }

        /// Resolves at Ctrl-C. Nothing asks for a reload.
        pub(crate) async fn stop(&mut self, _: impl Fn()) {
            self.0.recv().await;
        }
    }

    impl Interrupt {
        pub(crate) fn new() -> io::Result<Self> {
            ctrl_c().map(Self)
        }

        /// Resolves at the next one; `None`: there will be none.
        pub(crate) async fn next(&mut self) -> Option<()> {
            self.0.recv().await
        }
    }
}

pub(crate) use of_system::{Interrupt, ServerSignals};

/// Waiting orders, in addition to the one in progress: a waiting order also covers all later signals.
const ORDERS_MAX: usize = 1;

/// The settings in force, and the parts of the server that settings change.
pub(crate) struct Reload {
    pub(crate) args: ServeArgs,
    pub(crate) config: Config,
    pub(crate) ring: Keyring,
    pub(crate) log: LogFilter,
    pub(crate) server: Reconfigure,
    /// Running engines, and the settings of later loads.
    pub(crate) library: Arc<Library>,
}

/// Handle of the reload thread.
pub(crate) struct Reloading {
    orders: SyncSender<()>,
    drain_timeout_ms: Arc<AtomicU64>,
}

impl Reloading {
    /// Starts the thread, inside the server's runtime.
    ///
    /// # Errors
    /// The system cannot start a thread.
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

    /// Orders a reload.
    pub(crate) fn order(&self) {
        // Full: the waiting reload has not begun and will read the same files.
        let _ = self.orders.try_send(());
    }

    /// Drain time of a graceful shutdown.
    pub(crate) fn drain_timeout_ms(&self) -> u64 {
        self.drain_timeout_ms.load(Ordering::Relaxed)
    }
}

impl Reload {
    fn run(mut self, orders: &Receiver<()>, drain_timeout_ms: &AtomicU64) {
        while orders.recv().is_ok() {
            self.reload_all();
            drain_timeout_ms.store(self.drain_timeout_ms(), Ordering::Relaxed);
        }
    }

    /// Reads settings and keys again, and logs the result.
    fn reload_all(&mut self) {
        if let Err(why) = self.reload_settings() {
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

    fn reload_settings(&mut self) -> Result<(), String> {
        let new = self.args.settings().map_err(|why| why.to_string())?;
        let changes = Changes::between(&self.config, new)?;
        // Fallible changes come first.
        let settings = &changes.config.settings;
        let certificate = settings.listener.certificate()?;
        self.log.set(&settings.log.filter)?;
        if let Some(certificate) = certificate {
            self.server.set_certificate(certificate);
        }
        self.ring.set_file(settings.keys.file.clone());
        self.server.apply(server_config(settings));
        self.library.apply_settings(settings.clone());
        tracing::info!(
            "the settings were reloaded; changed: {}",
            list_names(&changes.live)
        );
        if !changes.restart.is_empty() {
            tracing::warn!("needs a restart: {}", list_names(&changes.restart));
        }
        self.config = changes.config;
        Ok(())
    }
}

fn list_names(keys: &[&str]) -> String {
    match keys {
        [] => "nothing".to_owned(),
        keys => keys.join(", "),
    }
}
