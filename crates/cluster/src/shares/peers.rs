//! The other gateways, from their reports.

use super::key_state::Sender;
use super::standing::Standing;
use super::{HELD, INTERVAL, SILENT};
use crate::messages::{USAGE_SEEN_MAX, UsageReport};
use crate::names::InstanceId;
use std::collections::{BTreeMap, VecDeque};

/// Other gateways of a cluster, including those that are silent.
pub const GATEWAYS_MAX: usize = USAGE_SEEN_MAX;
/// Reports of which the time is known: older ones prove nothing.
const SENT_MAX: usize = 32;
/// Time that one look counts at most: a longer time between two looks is a pause of this process.
const LOOK_MAX_NS: u64 = INTERVAL.as_nanos() as u64 * 2;

/// Another gateway.
#[derive(Clone, Copy, Debug)]
struct Peer {
    sequence: u64,
    /// When the last report was sent that the gateway has acknowledged.
    acknowledged_ns: Option<u64>,
    /// Time without a report in which one could arrive.
    absent_ns: u64,
    /// Has sent the last report.
    has_left: bool,
}

/// The other gateways.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// At most [`GATEWAYS_MAX`].
    peers: BTreeMap<InstanceId, Peer>,
    /// Numbers and times of this gateway's last reports, at most [`SENT_MAX`].
    sent: VecDeque<(u64, u64)>,
    looked_ns: u64,
}

/// Kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The next of its gateway.
    Next(Sender),
    /// Repeated, or older than the last.
    Stale,
    /// There are too many gateways.
    OverLimit,
}

impl Peers {
    /// Takes the head of a report. `own`: this gateway.
    pub(super) fn hear(&mut self, report: &UsageReport, own: InstanceId, now_ns: u64) -> Heard {
        let id = report.gateway;
        let before = self.peers.get(&id).copied();
        if before.is_some_and(|before| report.sequence <= before.sequence) {
            return Heard::Stale;
        }
        if before.is_none() && !self.make_room() {
            return Heard::OverLimit;
        }
        let seen = report.seen.iter().find(|(gateway, _)| *gateway == own);
        let sent = seen.and_then(|(_, number)| self.sent.iter().find(|sent| sent.0 == *number));
        let from = match before {
            None => Sender::New,
            Some(before) if before.is_heard(now_ns) => Sender::Heard,
            Some(_) => Sender::Silent,
        };
        let before_ns = before.and_then(|before| before.acknowledged_ns);
        let peer = Peer {
            sequence: report.sequence,
            acknowledged_ns: sent.map(|sent| sent.1).max(before_ns),
            absent_ns: 0,
            has_left: report.is_last,
        };
        self.peers.insert(id, peer);
        Heard::Next(from)
    }

    /// A report with this number is sent. The result: what it acknowledges.
    pub(super) fn send(&mut self, sequence: u64, now_ns: u64) -> Vec<(InstanceId, u64)> {
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((sequence, now_ns));
        let present = self.peers.iter().filter(|(_, peer)| !peer.has_left);
        present.map(|(&id, peer)| (id, peer.sequence)).collect()
    }

    /// Counts the time without reports. Gateways without a report for [`HELD`] are removed and returned.
    pub(super) fn look(&mut self, is_connected: bool, now_ns: u64) -> Vec<InstanceId> {
        let time = now_ns.saturating_sub(self.looked_ns).min(LOOK_MAX_NS);
        self.looked_ns = self.looked_ns.max(now_ns);
        let mut dead = Vec::new();
        for (&id, peer) in &mut self.peers {
            // A report sets the time to zero again.
            if is_connected {
                peer.absent_ns = peer.absent_ns.saturating_add(time);
            }
            if u128::from(peer.absent_ns) >= HELD.as_nanos() {
                dead.push(id);
            }
        }
        for id in &dead {
            self.peers.remove(id);
        }
        dead
    }

    /// How many there are, with this gateway.
    pub(super) fn standing(&self, is_joining: bool, now_ns: u64) -> Standing {
        let count = |is: &dyn Fn(&Peer) -> bool| {
            let found = self.peers.values().filter(|peer| is(peer)).count();
            u32::try_from(found).unwrap_or(u32::MAX) + 1
        };
        Standing {
            gateways: count(&|peer| !peer.has_left),
            heard: count(&|peer| !peer.has_left && peer.is_heard(now_ns)),
            is_joining,
        }
    }

    /// Gateways that were heard and are silent.
    pub(super) fn lost_count(&self, now_ns: u64) -> u32 {
        let peers = self.peers.values().filter(|peer| !peer.has_left);
        let lost = peers.filter(|peer| peer.acknowledged_ns.is_some() && !peer.is_heard(now_ns));
        u32::try_from(lost.count()).unwrap_or(u32::MAX)
    }

    /// Whether a gateway's reports arrive.
    pub(super) fn is_heard(&self, id: InstanceId, now_ns: u64) -> bool {
        self.peers
            .get(&id)
            .is_some_and(|peer| peer.is_heard(now_ns))
    }

    /// Whether another gateway can be stored; one that has left makes room.
    fn make_room(&mut self) -> bool {
        if self.peers.len() < GATEWAYS_MAX {
            return true;
        }
        let mut peers = self.peers.iter();
        let left = peers.find(|(_, peer)| peer.has_left).map(|(&id, _)| id);
        left.is_some_and(|id| self.peers.remove(&id).is_some())
    }
}

impl Peer {
    /// A gateway that has left reports no more, and uses nothing.
    fn is_heard(&self, now_ns: u64) -> bool {
        let is_recent = |sent| u128::from(now_ns.saturating_sub(sent)) <= SILENT.as_nanos();
        !self.has_left && self.acknowledged_ns.is_some_and(is_recent)
    }
}
