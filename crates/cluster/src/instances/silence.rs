//! Time without a heartbeat.
//!
//! An instance is not to blame for time in which its heartbeats could not arrive: while this process has no connection,
//! shortly after a new one (the others connect again, too), or while this process was stopped.
//!
//! # Probes
//! An instance whose heartbeats are missing is connected to. Where the connection is refused, the process has ended: the kernel says so
//! at once, where silence needs twelve heartbeats.
//!
//! A refusal counts only if the address could be reached before: an address may be another machine's loopback address, or
//! behind a firewall that refuses everything. A process that is stopped, or a machine that is lost, refuses nothing.

use crate::names::InstanceId;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Heartbeats that may be missed before an instance is suspected.
const SUSPECTED: u32 = 3;
/// Heartbeats that may be missed before an instance is gone.
const GONE: u32 = 12;
/// Heartbeats after which an instance that is gone is forgotten.
const FORGOTTEN: u32 = 240;
/// Heartbeats that one look counts at most: a longer time between two looks is a pause of this process.
const LOOK_MAX: u32 = 2;
/// Time after a new connection in which silence is not counted: other instances wait that long between two attempts.
const GRACE: Duration = Duration::from_millis(2500);

/// Counts the time in which heartbeats could arrive.
#[derive(Debug)]
pub(super) struct ListeningClock {
    heartbeat: Duration,
    last_look: Instant,
    /// Since when heartbeats can arrive.
    listening_since: Option<Instant>,
    /// Time that was counted since then.
    listened: Duration,
}

/// How long an instance was silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Silence(Duration);

/// Meaning of a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Alive,
    Suspected,
    Gone,
    Forgotten,
}

impl ListeningClock {
    pub(super) fn new(heartbeat: Duration, now: Instant) -> Self {
        Self {
            heartbeat,
            last_look: now,
            listening_since: None,
            listened: Duration::ZERO,
        }
    }

    /// The time to be counted since the last look.
    pub(super) fn look(&mut self, is_connected: bool, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.last_look);
        self.last_look = self.last_look.max(now);
        if !is_connected {
            (self.listening_since, self.listened) = (None, Duration::ZERO);
            return Duration::ZERO;
        }
        let since = *self.listening_since.get_or_insert(now);
        if now.saturating_duration_since(since) < GRACE {
            return Duration::ZERO;
        }
        let time = elapsed.min(self.heartbeat * LOOK_MAX);
        self.listened += time;
        time
    }

    /// Whether an instance that lives would have been heard by now.
    pub(super) fn has_heard_all(&self) -> bool {
        self.listened >= self.heartbeat * GONE
    }

    /// Meaning of a silence.
    pub(super) fn judge(&self, silence: Silence) -> Verdict {
        match silence.0 {
            time if time >= self.heartbeat * FORGOTTEN => Verdict::Forgotten,
            time if time >= self.heartbeat * GONE => Verdict::Gone,
            time if time >= self.heartbeat * SUSPECTED => Verdict::Suspected,
            _ => Verdict::Alive,
        }
    }
}

impl Silence {
    pub(super) fn add(&mut self, time: Duration) {
        self.0 = self.0.saturating_add(time);
    }
}

/// Connections that are tried at the same time; further ones are tried at the next heartbeat.
const PROBES_MAX: usize = 16;
/// Time for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// What a connection says of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeResult {
    Accepted,
    Refused,
    Unknown,
}

/// The connections that are tried, and what is known of those before.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// At most [`PROBES_MAX`].
    running: JoinSet<(InstanceId, ProbeResult)>,
    /// The instances of `running`.
    tried: BTreeSet<InstanceId>,
    /// Instances that accepted a connection; a part of the registry's.
    reached: BTreeSet<InstanceId>,
}

impl Probes {
    /// Whether the instance accepted a connection before.
    pub(super) fn has_reached(&self, id: InstanceId) -> bool {
        self.reached.contains(&id)
    }

    /// Tries a connection to the instance's address (host and port), unless one is being tried.
    pub(super) fn start(&mut self, id: InstanceId, address: String) {
        if self.running.len() < PROBES_MAX && self.tried.insert(id) {
            self.running
                .spawn(async move { (id, connect(&address).await) });
        }
    }

    /// Waits for the next result, without end where no connection is tried. Returns an instance that refused a connection
    /// and had accepted one before.
    pub(super) async fn next_refused(&mut self) -> Option<InstanceId> {
        let Some(joined) = self.running.join_next().await else {
            return std::future::pending().await;
        };
        let (id, result) = joined.ok()?;
        self.tried.remove(&id);
        match result {
            ProbeResult::Accepted => {
                self.reached.insert(id);
                None
            }
            ProbeResult::Refused => self.has_reached(id).then_some(id),
            ProbeResult::Unknown => None,
        }
    }

    /// Forgets instances that are not known any more.
    pub(super) fn retain(&mut self, is_known: impl Fn(InstanceId) -> bool) {
        self.reached.retain(|id| is_known(*id));
    }
}

async fn connect(address: &str) -> ProbeResult {
    match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
        Ok(Ok(_)) => ProbeResult::Accepted,
        Ok(Err(why)) if why.kind() == ErrorKind::ConnectionRefused => ProbeResult::Refused,
        Ok(Err(_)) | Err(_) => ProbeResult::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const BEAT: Duration = Duration::from_millis(250);

    /// The time that looks each `step` count, from a connection at 0 until `end`.
    fn counted(
        clock: &mut ListeningClock,
        start: Instant,
        step: Duration,
        end: Duration,
    ) -> Duration {
        let mut silence = Silence::default();
        let mut at = Duration::ZERO;
        while at <= end {
            silence.add(clock.look(true, start + at));
            at += step;
        }
        silence.0
    }

    #[test]
    fn time_counts_after_the_grace() {
        let start = tokio::time::Instant::now().into_std();
        let mut clock = ListeningClock::new(BEAT, start);
        let step = Duration::from_millis(50);
        let end = GRACE + Duration::from_secs(1);
        let time = counted(&mut clock, start, step, end);
        assert_eq!(time, Duration::from_secs(1) + step);
        assert!(!clock.has_heard_all());
        let end = GRACE + BEAT * GONE;
        let mut at = GRACE + Duration::from_secs(1) + step;
        while at <= end {
            clock.look(true, start + at);
            at += step;
        }
        assert!(clock.has_heard_all());
        clock.look(false, start + end);
        assert!(!clock.has_heard_all(), "after a lost connection");
    }

    #[test]
    fn pauses_and_lost_connections_do_not_count() {
        let start = tokio::time::Instant::now().into_std();
        let mut clock = ListeningClock::new(BEAT, start);
        assert_eq!(clock.look(true, start), Duration::ZERO);
        let hour = start + Duration::from_secs(3600);
        assert_eq!(
            clock.look(true, hour),
            BEAT * LOOK_MAX,
            "stopped for an hour"
        );
        assert_eq!(clock.look(false, hour + BEAT), Duration::ZERO);
        assert_eq!(clock.look(true, hour + BEAT * 2), Duration::ZERO, "grace");
        let later = hour + BEAT * 2 + GRACE;
        assert!(clock.look(true, later) > Duration::ZERO);
        assert_eq!(clock.look(true, start), Duration::ZERO, "time went back");
    }

    #[test]
    fn silence_is_judged_in_heartbeats() {
        let start = tokio::time::Instant::now().into_std();
        let clock = ListeningClock::new(BEAT, start);
        let judge = |beats: u32| {
            let just_before = BEAT * beats - Duration::from_nanos(1);
            let judge = |time| clock.judge(Silence(time));
            (judge(just_before), judge(BEAT * beats))
        };
        assert_eq!(judge(SUSPECTED), (Verdict::Alive, Verdict::Suspected));
        assert_eq!(judge(GONE), (Verdict::Suspected, Verdict::Gone));
        assert_eq!(judge(FORGOTTEN), (Verdict::Gone, Verdict::Forgotten));
    }

    async fn probe(probes: &mut Probes, address: &str) -> Option<InstanceId> {
        probes.start(InstanceId(1), address.to_owned());
        probes.next_refused().await
    }

    #[tokio::test]
    async fn refusal_counts_after_a_connection() {
        let mut probes = Probes::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        assert_eq!(probe(&mut probes, &address).await, None, "never reached");
        let listener = TcpListener::bind(&address).await.unwrap();
        assert_eq!(probe(&mut probes, &address).await, None);
        assert!(probes.has_reached(InstanceId(1)));
        drop(listener);
        let refused = probe(&mut probes, &address).await;
        assert_eq!(refused, Some(InstanceId(1)));
        probes.retain(|id| id != InstanceId(1));
        assert_eq!(probe(&mut probes, &address).await, None, "forgotten");
    }

    #[tokio::test]
    async fn probes_are_bounded() {
        let mut probes = Probes::default();
        for id in 0..100 {
            probes.start(InstanceId(id), "127.0.0.1:1".to_owned());
            probes.start(InstanceId(id), "127.0.0.1:1".to_owned());
        }
        assert_eq!(probes.running.len(), PROBES_MAX);
        assert_eq!(probes.tried.len(), PROBES_MAX);
        for _ in 0..PROBES_MAX {
            assert_eq!(probes.next_refused().await, None);
        }
        assert!(probes.tried.is_empty());
        assert_eq!(probe(&mut probes, "no address").await, None);
    }
}
