//! Signals of the operating system. Windows has Ctrl-C only: a server there is ended by it, and reads its settings once.

use std::io;

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
