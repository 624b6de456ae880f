//! Engines that end no step for too long, for the liveness probe: where no service manager has a watchdog, as in a container,
//! the prober replaces the process; and whether engines make progress, for a watchdog.
//!
//! Messages to the service manager go by systemd's protocol (`sd_notify(3)`): ready, stopping, and alive.
//! A service with `WatchdogSec=` is restarted when it says nothing for that time. This process says that it is alive only
//! while its engines make progress, so an engine that is stuck in a step is replaced; streams with a journal continue.

use crate::config::Settings;
use crate::library::Library;
use datagrams::Datagrams;
use engine::Stats;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks at the engines within the time after which one is stuck.
const LOOKS: u32 = 5;

/// Words for an engine that is stuck.
const STUCK: &str = "has ended no step, or has had no device,";

/// Consecutive looks at engines that had made no progress.
pub(crate) struct StallWatch {
    limit: Duration,
    without_progress: AtomicU32,
}

impl StallWatch {
    /// Looks at the engines from now on; `None`: the settings say never. Must be called inside a tokio runtime.
    pub(crate) fn start(settings: &Settings, library: &Arc<Library>) -> Option<Arc<Self>> {
        let limit = Duration::from_secs(settings.server.engine_stall_s);
        if limit.is_zero() {
            return None;
        }
        let watch = Arc::new(Self::new(limit));
        let (noted, library) = (Arc::clone(&watch), Arc::clone(library));
        let mut looks = tokio::time::interval(limit / LOOKS);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::spawn(async move {
            let mut progress = EngineProgress::default();
            loop {
                looks.tick().await;
                noted.note(library.look_at(&mut progress));
            }
        });
        Some(watch)
    }

    fn new(limit: Duration) -> Self {
        Self {
            limit,
            without_progress: AtomicU32::new(0),
        }
    }

    /// Notes one look.
    fn note(&self, has_progress: bool) {
        if has_progress {
            self.without_progress.store(0, Ordering::Relaxed);
            return;
        }
        let looks = self.without_progress.fetch_add(1, Ordering::Relaxed) + 1;
        if looks == LOOKS {
            tracing::error!("{}: the liveness probe fails", self.words());
        }
    }

    /// The part that is stuck; `None`: nothing is.
    pub(crate) fn problem(&self) -> Option<String> {
        (self.without_progress.load(Ordering::Relaxed) >= LOOKS).then(|| self.words())
    }

    fn words(&self) -> String {
        let seconds = self.limit.as_secs();
        format!("an engine {STUCK} for {seconds} s (server.engine_stall_s)")
    }
}

/// What was last seen of each engine.
#[derive(Debug, Default)]
pub(crate) struct EngineProgress {
    /// Number of steps by id of the engine.
    steps: HashMap<u64, u64>,
}

/// Snapshot of an engine's progress.
#[derive(Clone, Copy)]
pub(super) struct EngineSight {
    pub(super) id: u64,
    steps: u64,
    /// Sequences that take part in the next step.
    running: u64,
    /// The device is lost, and every request fails.
    is_lost: bool,
}

impl EngineSight {
    pub(super) fn of(id: u64, stats: &Stats) -> Self {
        Self {
            id,
            steps: stats.steps(),
            running: stats.running(),
            is_lost: stats.device_lost() > 0,
        }
    }
}

impl EngineProgress {
    /// Whether each engine has a device, and has nothing to run or has ended a step since the last look. An engine that is new
    /// gets until the next look.
    pub(super) fn look(&mut self, engines: &[EngineSight]) -> bool {
        let is_stuck = |engine: &EngineSight| {
            let has_stopped = self.steps.get(&engine.id) == Some(&engine.steps);
            engine.is_lost || (engine.running > 0 && has_stopped)
        };
        let progress = !engines.iter().any(is_stuck);
        self.steps = engines.iter().map(|seen| (seen.id, seen.steps)).collect();
        progress
    }
}

/// Looks at the engines within the time of the watchdog.
const WATCHDOG_LOOKS: u32 = 4;

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
        let mut looks = tokio::time::interval(timeout / WATCHDOG_LOOKS);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::spawn(async move {
            let mut progress = EngineProgress::default();
            loop {
                looks.tick().await;
                if library.look_at(&mut progress) {
                    manager.send("WATCHDOG=1");
                } else {
                    tracing::error!(
                        "an engine {STUCK} for {} s: the service manager will restart this process after {} s",
                        (timeout / WATCHDOG_LOOKS).as_secs_f32(),
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
    use std::time::Duration;
    use testing::folder::Folder;

    #[test]
    fn engine_is_stuck_after_all_looks_of_the_time() {
        let watch = StallWatch::new(Duration::from_secs(300));
        for _ in 1..LOOKS {
            watch.note(false);
            assert_eq!(watch.problem(), None);
        }
        watch.note(true);
        for _ in 1..LOOKS {
            watch.note(false);
        }
        assert_eq!(watch.problem(), None, "a step in between");
        watch.note(false);
        let words =
            "an engine has ended no step, or has had no device, for 300 s (server.engine_stall_s)";
        assert_eq!(watch.problem().as_deref(), Some(words));
        watch.note(true);
        assert_eq!(watch.problem(), None, "it goes on");
    }

    #[test]
    fn engine_with_work_and_without_steps_is_stuck() {
        let sight = |id, steps, running| EngineSight {
            id,
            steps,
            running,
            is_lost: false,
        };
        let lost = EngineSight {
            is_lost: true,
            ..sight(1, 6, 0)
        };
        let mut progress = EngineProgress::default();
        let rows: [(&str, &[EngineSight], bool); 9] = [
            ("no engine", &[], true),
            ("a new one", &[sight(1, 5, 1)], true),
            ("a step", &[sight(1, 6, 1)], true),
            ("no step", &[sight(1, 6, 1)], false),
            ("still none", &[sight(1, 6, 2)], false),
            ("nothing to run", &[sight(1, 6, 0)], true),
            ("no device", &[lost], false),
            (
                "another one steps",
                &[sight(1, 6, 1), sight(2, 9, 1)],
                false,
            ),
            ("both step", &[sight(1, 7, 1), sight(2, 10, 1)], true),
        ];
        for (case, engines, want) in rows {
            assert_eq!(progress.look(engines), want, "{case}");
        }
        assert_eq!(
            progress.steps.len(),
            2,
            "engines that are gone are forgotten"
        );
    }

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
