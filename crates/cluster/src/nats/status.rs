//! Whether NATS can be used, and if not, why.

use super::denials::{Denial, Denials};
use super::server_version::{RECOMMENDED, ServerVersion, VERSION_FLOOR};
use std::time::Instant;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn start() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn server(version: &str) -> NatsServer {
        NatsServer {
            name: "n1".to_owned(),
            version: version.to_owned(),
            cluster: None,
            max_payload: PAYLOAD_FLOOR,
        }
    }

    fn problem(status: &mut ConnectionStatus, now: Instant) -> String {
        status.problem(now).expect("a problem")
    }

    #[test]
    fn reason_of_a_missing_connection_is_told_once() {
        let now = start();
        let mut status = ConnectionStatus::new(1, now);
        assert!(problem(&mut status, now).contains("not reachable yet"));
        let reason = "nats://a: refused";
        assert!(status.attempt_failed(reason).is_some());
        assert_eq!(status.attempt_failed(reason), None);
        assert!(problem(&mut status, now).contains(reason));
        assert!(!status.is_usable());
        assert_eq!(status.connected(server("2.12.8"), now).len(), 1);
        assert_eq!((status.is_usable(), status.problem(now)), (true, None));
        assert_eq!(status.attempt_failed(reason), None, "an old attempt");
        assert!(status.disconnected(now).is_some());
        assert_eq!(status.disconnected(now), None);
        assert!(!problem(&mut status, now).contains(reason));
    }

    #[test]
    fn old_and_small_servers_are_refused_with_the_bound() {
        let now = start();
        for (version, max_payload, expected) in [
            ("2.9.9", PAYLOAD_FLOOR, "2.9.9: at least 2.9.10 is required"),
            (
                "mine",
                PAYLOAD_FLOOR,
                "\"mine\": at least 2.9.10 is required",
            ),
            (
                "2.12.8",
                PAYLOAD_FLOOR - 1,
                "max_payload must be at least 1048576",
            ),
        ] {
            let mut status = ConnectionStatus::new(1, now);
            let server = NatsServer {
                max_payload,
                ..server(version)
            };
            let news = status.connected(server, now);
            assert!(matches!(&news[..], [News::Error(why)] if why.contains(expected)));
            assert!(!status.is_usable());
            assert!(problem(&mut status, now).contains(expected));
        }
    }

    #[test]
    fn servers_that_are_no_cluster_are_told() {
        let now = start();
        let of = |cluster: Option<&str>| NatsServer {
            cluster: cluster.map(str::to_owned),
            ..server("2.12.8")
        };
        let told = |status: &mut ConnectionStatus, server| {
            let news = status.connected(server, now);
            let is_error = |news: &&News| matches!(news, News::Error(_));
            news.iter().filter(is_error).count()
        };
        let mut single = ConnectionStatus::new(1, now);
        assert_eq!(told(&mut single, of(None)), 0);
        let mut three = ConnectionStatus::new(3, now);
        assert_eq!(told(&mut three, of(None)), 1);
        assert_eq!(told(&mut three, of(Some("a"))), 0);
        assert_eq!(told(&mut three, of(Some("a"))), 0);
        assert_eq!(told(&mut three, of(Some("b"))), 1);
        assert!(three.is_usable());
    }

    #[test]
    fn old_servers_above_the_floor_are_used_with_a_warning() {
        let now = start();
        let mut status = ConnectionStatus::new(1, now);
        let news = status.connected(server("2.10.22"), now);
        assert!(matches!(&news[..], [News::Info(_), News::Warning(why)] if why.contains("2.12.3")));
        assert!(status.is_usable());
    }

    #[test]
    fn denied_subjects_are_named_until_the_next_connection() {
        let now = start();
        let mut status = ConnectionStatus::new(1, now);
        status.connected(server("2.12.8"), now);
        let error = "Permissions Violation for Subscription to \"mr.a.hb\"";
        assert!(matches!(
            status.server_error(error, now),
            Some(News::Error(_))
        ));
        assert_eq!(status.server_error(error, now), None, "told once");
        let later = now + Duration::from_secs(3600);
        assert!(problem(&mut status, later).contains("subscribe to \"mr.a.hb\""));
        assert_eq!(status.denials(later).len(), 1);
        status.connected(server("2.12.8"), later);
        assert_eq!(status.problem(later), None);
        let other = status.server_error("maximum connections exceeded", now);
        assert!(matches!(other, Some(News::Warning(_))));
        assert_eq!(status.problem(later), None);
    }
}
