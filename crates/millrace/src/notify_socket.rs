//! Messages to the service manager, by systemd's protocol (`sd_notify(3)`): ready, stopping, and alive.
//!
//! A service with `WatchdogSec=` is restarted when it says nothing for that time. This process says that it is alive only
//! while its engines make progress, so an engine that is stuck in a step is replaced; streams with a journal go on.

use crate::library::{EngineProgress, Library};
use datagrams::Datagrams;
use std::sync::Arc;
use std::time::Duration;

/// Looks at the engines within the time of the watchdog.
const LOOKS: u32 = 4;

/// Time that a stopping process may need beyond that of the running streams: for the last bytes (2 s), the handover in a
/// cluster, and the journal (`JOURNAL_STOP_MAX`, 10 s).
const AFTER_DRAIN: Duration = Duration::from_secs(20);

/// The socket of the service manager that started this process.
pub(crate) struct NotifySocket(Datagrams);

#[cfg(unix)]
mod datagrams {
    use std::io;
    #[cfg(target_os = "linux")]
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    /// A socket of datagrams, and where they go.
    pub(super) struct Datagrams {
        socket: UnixDatagram,
        address: SocketAddr,
    }

    impl Datagrams {
        /// Datagrams to a path, or to an abstract name after `@`.
        pub(super) fn to(path: &str) -> io::Result<Self> {
            let address = match path.strip_prefix('@') {
                Some(name) => abstract_address(name)?,
                None => SocketAddr::from_pathname(path)?,
            };
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok(Self { socket, address })
        }

        pub(super) fn send(&self, message: &str) -> io::Result<()> {
            let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
            sent.map(drop)
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn abstract_address(name: &str) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(name)
    }

    #[cfg(not(target_os = "linux"))]
    fn abstract_address(_: &str) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(not(unix))]
mod datagrams {
    use std::io;

    /// Nothing: no service manager of this system has such a socket.
    pub(super) enum Datagrams {}

    impl Datagrams {
        pub(super) fn to(_: &str) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn send(&self, _: &str) -> io::Result<()> {
            match *self {}
        }
    }
}

impl NotifySocket {
    /// The manager that the environment names; `None` without one.
    pub(crate) fn from_env() -> Option<Arc<Self>> {
        let path = std::env::var("NOTIFY_SOCKET").ok()?;
        if path.is_empty() {
            return None;
        }
        match Datagrams::to(&path) {
            Ok(manager) => Some(Arc::new(Self(manager))),
            Err(why) => {
                tracing::warn!("NOTIFY_SOCKET {path}: {why}: the service manager is told nothing");
                None
            }
        }
    }

    /// Requests are accepted.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// The shutdown has begun, and running streams have this time: the manager waits for it, whatever the unit's
    /// `TimeoutStopSec` is.
    pub(crate) fn stopping(&self, drain: Duration) {
        let needed = (drain + AFTER_DRAIN).as_micros();
        self.send(&format!(
            "STOPPING=1\nSTATUS=running streams end\nEXTEND_TIMEOUT_USEC={needed}"
        ));
    }

    /// Says that this process is alive as long as its engines make progress, if the manager wants to hear that.
    pub(crate) fn start_watchdog(self: &Arc<Self>, library: &Arc<Library>) {
        let Some(timeout) = watchdog_timeout() else {
            return;
        };
        let (manager, library) = (Arc::clone(self), Arc::clone(library));
        let mut looks = tokio::time::interval(timeout / LOOKS);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::spawn(async move {
            let mut progress = EngineProgress::default();
            loop {
                looks.tick().await;
                if library.look_at(&mut progress) {
                    manager.send("WATCHDOG=1");
                } else {
                    tracing::error!(
                        "an engine has ended no step for {} s: the service manager will restart this process \
                         after {} s",
                        (timeout / LOOKS).as_secs_f32(),
                        timeout.as_secs_f32()
                    );
                }
            }
        });
    }

    fn send(&self, message: &str) {
        if let Err(why) = self.0.send(message) {
            tracing::warn!("the service manager was not told {message:?}: {why}");
        }
    }
}

/// The time of the watchdog, if it is for this process.
fn watchdog_timeout() -> Option<Duration> {
    let variable = |name: &str| std::env::var(name).ok();
    timeout_of(
        variable("WATCHDOG_USEC").as_deref(),
        variable("WATCHDOG_PID").as_deref(),
        std::process::id(),
    )
}

fn timeout_of(microseconds: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let microseconds = microseconds?.parse::<u64>().ok().filter(|us| *us > 0)?;
    is_ours.then(|| Duration::from_micros(microseconds))
}

#[cfg(test)]
mod tests {
    use super::datagrams::abstract_address;
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use testing::folder::Folder;

    #[test]
    fn watchdog_of_another_process_is_none() {
        let rows = [
            (Some("2000000"), None, Some(2)),
            (Some("2000000"), Some("7"), Some(2)),
            (Some("2000000"), Some("8"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, Some("7"), None),
        ];
        for (microseconds, pid, want) in rows {
            let timeout = timeout_of(microseconds, pid, 7);
            assert_eq!(
                timeout,
                want.map(Duration::from_secs),
                "{microseconds:?} {pid:?}"
            );
        }
    }

    #[test]
    fn socket_is_a_path_or_an_abstract_name() {
        let folder = Folder::new("manager");
        let path = folder.0.join("notify");
        let name = format!("millrace-test-{}", std::process::id());
        let sockets = [
            UnixDatagram::bind(&path),
            abstract_address(&name).and_then(|at| UnixDatagram::bind_addr(&at)),
        ];
        let spelled = [path.display().to_string(), format!("@{name}")];
        for (socket, spelled) in sockets.into_iter().zip(spelled) {
            let socket = socket.unwrap();
            NotifySocket(Datagrams::to(&spelled).unwrap()).ready("here");
            let mut bytes = [0; 64];
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1\nSTATUS=here", "{spelled}");
        }
    }
}
