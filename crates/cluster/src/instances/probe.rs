//! Connections to instances whose heartbeats are missing. Where one is refused, the process has ended: the kernel says so
//! at once, where silence needs twelve heartbeats.
//!
//! A refusal counts only if the address could be reached before: an address may be another machine's loopback address, or
//! behind a firewall that refuses everything. A process that is stopped, or a machine that is lost, refuses nothing.

use crate::names::InstanceId;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

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
