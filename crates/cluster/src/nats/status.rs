//! Whether NATS can be used, and if not, why: subjects that a server denies to this process, and whether this process
//! hears its own heartbeats, which go through NATS and back.
//!
//! A gateway that was stopped, or that NATS did not reach, for several heartbeats may have been taken for dead, and its
//! streams been taken over. What NATS has held back arrives first when the gateway is back: sent to clients, it would be the
//! text of a second owner. So tokens are dropped, and read again later, until JetStream has said who owns the streams.

#[cfg(test)]
mod tests;

use super::connection::{RECOMMENDED, ServerVersion, VERSION_FLOOR};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes that one message may have at least: messages of crate `cluster` are shorter.
pub(super) const PAYLOAD_FLOOR: usize = 1 << 20;

/// Report of a NATS server about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsServer {
    /// Name of the server.
    pub name: String,
    /// Version of the server.
    pub version: String,
    /// Name of the NATS cluster that the server belongs to; `None`: a single server.
    pub cluster: Option<String>,
    /// Most bytes of one message.
    pub max_payload: usize,
}

/// State of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Not connected; attempts go on.
    Disconnected {
        /// Since the connection was lost, or since the start.
        since: Instant,
        /// Error of each server at the last attempt; `None` before the first attempt has failed.
        why: Option<String>,
    },
    /// Connected with a server that is used.
    Connected {
        /// Since then.
        since: Instant,
        /// The server.
        server: NatsServer,
    },
    /// Connected with a server that is not used.
    Refused {
        /// Since then.
        since: Instant,
        /// The server.
        server: NatsServer,
        /// Why not.
        why: String,
    },
}

/// State of the connection, and what the server denies.
#[derive(Debug)]
pub struct ConnectionStatus {
    state: ConnectionState,
    denials: Denials,
    /// Configured servers.
    servers: usize,
    /// Name of the NATS cluster of the first connection.
    first_cluster: Option<String>,
}

/// News that an operator is to be told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// For information.
    Info(String),
    /// To be looked after.
    Warning(String),
    /// To be repaired.
    Error(String),
}

impl ConnectionStatus {
    /// A connection that is being opened, over this many configured servers.
    pub(super) fn new(servers: usize, now: Instant) -> Self {
        Self {
            state: ConnectionState::Disconnected {
                since: now,
                why: None,
            },
            denials: Denials::default(),
            servers,
            first_cluster: None,
        }
    }

    /// The state.
    pub fn state(&self) -> &ConnectionState {
        &self.state
    }

    /// Whether messages may be sent.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, ConnectionState::Connected { .. })
    }

    /// Why a gateway or an engine cannot do its work; `None`: it can.
    pub fn problem(&mut self, now: Instant) -> Option<String> {
        self.denials.expire(now);
        match &self.state {
            ConnectionState::Disconnected { why, .. } => Some(match why {
                Some(why) => format!("NATS is not reachable: {why}"),
                None => "NATS is not reachable yet".to_owned(),
            }),
            ConnectionState::Refused { why, .. } => Some(why.clone()),
            ConnectionState::Connected { .. } => {
                let mut denials = self.denials.iter();
                let denied = denials.find(|denial| !denial.concerns_records());
                denied.map(Denial::to_string)
            }
        }
    }

    /// All missing rights, a line each.
    pub fn denials(&mut self, now: Instant) -> Vec<String> {
        self.denials.expire(now);
        self.denials.iter().map(Denial::to_string).collect()
    }

    /// A connection was made.
    pub(super) fn connected(&mut self, server: NatsServer, now: Instant) -> Vec<News> {
        self.denials.clear();
        if let Some(why) = unfit(&server) {
            let news = vec![News::Error(why.clone())];
            self.state = ConnectionState::Refused {
                since: now,
                server,
                why,
            };
            return news;
        }
        let mut news = vec![News::Info(format!(
            "connected with NATS server {:?}, version {}",
            server.name, server.version
        ))];
        news.extend(self.notices(&server));
        self.state = ConnectionState::Connected { since: now, server };
        news
    }

    /// Problems of the servers, although they are used.
    fn notices(&mut self, server: &NatsServer) -> Vec<News> {
        let mut news = Vec::new();
        if ServerVersion::parse(&server.version).is_some_and(|version| version < RECOMMENDED) {
            news.push(News::Warning(format!(
                "NATS server {:?} has version {}; at least {RECOMMENDED} is recommended: older ones can lose records of \
                 streams when they are killed",
                server.name, server.version
            )));
        }
        if server.cluster.is_none() && self.servers > 1 {
            news.push(News::Error(format!(
                "NATS server {:?} belongs to no NATS cluster, but cluster.servers has {} servers: instances at different \
                 servers do not see each other",
                server.name, self.servers
            )));
        }
        match (&self.first_cluster, &server.cluster) {
            (Some(first), Some(cluster)) if first != cluster => news.push(News::Error(format!(
                "NATS server {:?} belongs to the NATS cluster {cluster:?}, the one before to {first:?}: cluster.servers \
                 names two clusters, and instances at different ones do not see each other",
                server.name
            ))),
            _ => {}
        }
        if self.first_cluster.is_none() {
            self.first_cluster.clone_from(&server.cluster);
        }
        news
    }

    /// The connection was lost.
    pub(super) fn disconnected(&mut self, now: Instant) -> Option<News> {
        if matches!(self.state, ConnectionState::Disconnected { .. }) {
            return None;
        }
        self.state = ConnectionState::Disconnected {
            since: now,
            why: None,
        };
        Some(News::Warning("the connection to NATS was lost".to_owned()))
    }

    /// All servers were tried in vain. Told when the reason changes.
    pub(super) fn attempt_failed(&mut self, reason: &str) -> Option<News> {
        let ConnectionState::Disconnected { why, .. } = &mut self.state else {
            return None;
        };
        if why.as_deref() == Some(reason) {
            return None;
        }
        *why = Some(reason.to_owned());
        Some(News::Warning(format!("NATS is not reachable: {reason}")))
    }

    /// The server sent an error. Told once for each subject.
    pub(super) fn server_error(&mut self, error: &str, now: Instant) -> Option<News> {
        match Denial::parse(error) {
            Some(denial) => {
                let line = denial.to_string();
                let is_new = self.denials.add(denial, now);
                is_new.then_some(News::Error(line))
            }
            None => Some(News::Warning(format!("error of the NATS server: {error}"))),
        }
    }
}

/// Why a server is not used.
fn unfit(server: &NatsServer) -> Option<String> {
    let name = &server.name;
    match ServerVersion::parse(&server.version) {
        Some(version) if version < VERSION_FLOOR => {
            return Some(format!(
                "NATS server {name:?} has version {version}: at least {VERSION_FLOOR} is required"
            ));
        }
        Some(_) => {}
        None => {
            return Some(format!(
                "NATS server {name:?} reports the version {:?}: at least {VERSION_FLOOR} is required",
                server.version
            ));
        }
    }
    (server.max_payload < PAYLOAD_FLOOR).then(|| {
        format!(
            "NATS server {name:?} takes messages of {} bytes: max_payload must be at least {PAYLOAD_FLOOR}",
            server.max_payload
        )
    })
}

/// Denials that are kept; further ones are only counted.
const DENIALS_MAX: usize = 32;

/// Time after which a denied publication that was not repeated is no longer shown: the rights may have changed.
const PUBLICATION_SHOWN: Duration = Duration::from_secs(10);

/// Bytes of a subject that is shown.
const SUBJECT_BYTES_MAX: usize = 256;

/// Denied use of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Publish,
    Subscribe,
}

/// A right that is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Denial {
    operation: Operation,
    subject: String,
}

impl Denial {
    /// Reads an error of a NATS server, such as `Permissions Violation for Publish to "mr.a.hb"`. `None`: another error.
    pub(super) fn parse(error: &str) -> Option<Self> {
        let lower = error.to_ascii_lowercase();
        let what = lower.strip_prefix("permissions violation for ")?;
        let operation = match what.split(' ').next()? {
            "publish" => Operation::Publish,
            "subscription" => Operation::Subscribe,
            _ => return None,
        };
        // Lower case keeps the length; subjects do not.
        let subject = error.split('"').nth(1)?;
        let subject: String = subject
            .chars()
            .filter(|c| !c.is_control())
            .take(SUBJECT_BYTES_MAX)
            .collect();
        Some(Self { operation, subject })
    }

    /// Whether only the records of streams need the subject: a process serves without them.
    pub(super) fn concerns_records(&self) -> bool {
        let subject = &*self.subject;
        let is_stored = subject.starts_with("mr.") && subject.contains(".s.");
        is_stored || subject.starts_with("$JS.") || subject.ends_with(".claimed")
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match self.operation {
            Operation::Publish => "publish to",
            Operation::Subscribe => "subscribe to",
        };
        write!(
            f,
            "the NATS user of this process may not {operation} \"{}\"",
            self.subject
        )
    }
}

/// The rights that are missing on one connection.
#[derive(Debug, Default)]
pub(super) struct Denials {
    /// When each was last seen; at most [`DENIALS_MAX`].
    seen: BTreeMap<Denial, Instant>,
}

impl Denials {
    /// Adds a denial; returns whether it is a new one.
    pub(super) fn add(&mut self, denial: Denial, now: Instant) -> bool {
        if self.seen.len() >= DENIALS_MAX && !self.seen.contains_key(&denial) {
            return false;
        }
        self.seen.insert(denial, now).is_none()
    }

    /// Forgets all: a new connection has new rights.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    /// Forgets publications that were not denied again.
    pub(super) fn expire(&mut self, now: Instant) {
        self.seen.retain(|denial, at| {
            denial.operation == Operation::Subscribe
                || now.saturating_duration_since(*at) < PUBLICATION_SHOWN
        });
    }

    /// The denials in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Denial> {
        self.seen.keys()
    }
}

/// Own heartbeats that may be missing. Others take an instance for dead after more, and not at all if this is a pause of
/// theirs.
const SILENT: u32 = 8;
/// Longest time for the answer of JetStream. Without one, streams continue: another gateway could not have claimed them either
/// if JetStream had been away before.
const HELD_MAX: Duration = Duration::from_secs(10);

/// Times of own heartbeats, in milliseconds since [`Hearing::new`].
#[derive(Debug)]
pub struct Hearing {
    start: Instant,
    /// Time without an own heartbeat that counts as silence; 0: no heartbeats are sent.
    silence_ms: AtomicU64,
    heard_ms: AtomicU64,
    /// How many silences have ended.
    returns: AtomicU64,
    returned_ms: AtomicU64,
    /// The return after which all owners were read.
    confirmed: AtomicU64,
    /// Whether anybody confirms returns.
    has_records: AtomicBool,
    back: Notify,
}

impl Hearing {
    /// No heartbeats are sent yet.
    pub fn new(now: Instant) -> Self {
        Self {
            start: now,
            silence_ms: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            returned_ms: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            has_records: AtomicBool::new(false),
            back: Notify::new(),
        }
    }

    fn since_start(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_millis() as u64
    }

    /// From now on an own heartbeat is sent each `heartbeat`.
    pub fn begin(&self, heartbeat: Duration, now: Instant) {
        self.heard_ms.store(self.since_start(now), SeqCst);
        let silence = (heartbeat * SILENT).as_millis() as u64;
        self.silence_ms.store(silence.max(1), SeqCst);
    }

    /// Somebody calls [`confirm`](Self::confirm).
    pub fn expect_confirmations(&self) {
        self.has_records.store(true, SeqCst);
    }

    /// An own heartbeat came back.
    pub fn note_heartbeat(&self, now: Instant) {
        if self.is_silent(now) {
            self.returned_ms.store(self.since_start(now), SeqCst);
            // Before the time below, which ends the silence.
            self.returns.fetch_add(1, SeqCst);
        }
        self.heard_ms.store(self.since_start(now), SeqCst);
        if self.returns() != self.confirmed.load(SeqCst) {
            self.back.notify_one();
        }
    }

    fn is_silent(&self, now: Instant) -> bool {
        let silence = self.silence_ms.load(SeqCst);
        let heard = self.heard_ms.load(SeqCst);
        silence != 0 && self.since_start(now).saturating_sub(heard) >= silence
    }

    /// How many silences have ended.
    pub fn returns(&self) -> u64 {
        self.returns.load(SeqCst)
    }

    /// The owners of all streams were read after this return.
    pub fn confirm(&self, returns: u64) {
        self.confirmed.fetch_max(returns, SeqCst);
    }

    /// Ready after a return that is not confirmed.
    pub async fn wait_return(&self) {
        self.back.notified().await;
    }

    /// Whether tokens of other processes are to be dropped: this process is deaf, or was, and does not know yet whether
    /// the streams are still its own.
    pub fn is_held(&self, now: Instant) -> bool {
        if !self.has_records.load(SeqCst) {
            return false;
        }
        let is_unsure = || {
            let since = self
                .since_start(now)
                .saturating_sub(self.returned_ms.load(SeqCst));
            self.confirmed.load(SeqCst) < self.returns() && u128::from(since) < HELD_MAX.as_millis()
        };
        self.is_silent(now) || is_unsure()
    }
}
