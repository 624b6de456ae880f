//! All keys and gateways. No clock and no network: messages and `now_ns` are arguments.

use super::key_state::{Arrival, KeyState, SharedLimits};
use super::peers::{Heard, Peers};
use super::standing::Standing;
use super::{INTERVAL, WINDOW};
use crate::messages::{MessageError, USAGE_ENTRIES_MAX, UsageReport};
use crate::names::InstanceId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Time after the start in which a gateway without a connection waits for reports of others.
const CONNECT_MAX_NS: u64 = INTERVAL.as_nanos() as u64 * 50;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharesCounts {
    /// Reports of other gateways.
    pub received: u64,
    /// Reports that were repeated or late.
    pub stale: u64,
    /// Messages that are no reports.
    pub malformed: u64,
    /// Reports of another version.
    pub newer: u64,
    /// Reports of gateways above [`super::GATEWAYS_MAX`].
    pub over_limit: u64,
    /// Entries of keys that this gateway does not have.
    pub unknown_keys: u64,
    /// Gateways that were silent for too long, and have no share any more.
    pub dead: u64,
}

/// The shares of one gateway.
#[derive(Debug)]
pub struct SharesCore {
    own: InstanceId,
    sequence: u64,
    /// By key, as the owner of its streams. One entry for each key of the process.
    keys: BTreeMap<u64, KeyState>,
    peers: Peers,
    standing: Standing,
    /// Gateways that were heard and are silent.
    lost: u32,
    /// Since when there is a connection for the first time.
    connected_ns: Option<u64>,
    /// The key after which the next report begins, if not all fit.
    cursor: Option<u64>,
    counts: SharesCounts,
}

impl SharesCore {
    /// A gateway that has just started.
    pub fn new(own: InstanceId) -> Self {
        Self {
            own,
            sequence: 0,
            keys: BTreeMap::new(),
            peers: Peers::default(),
            standing: Standing {
                is_joining: true,
                ..Standing::ALONE
            },
            lost: 0,
            connected_ns: None,
            cursor: None,
            counts: SharesCounts::default(),
        }
    }

    /// Adds a handle of a key, or replaces the limits of a known key.
    pub(super) fn add_key(&mut self, owner: u64, limits: SharedLimits) {
        let key = self.keys.entry(owner).or_default();
        key.limits = limits;
        key.handles += 1;
    }

    /// Removes a handle of a key; the last one with the key's usage.
    pub(super) fn remove_key(&mut self, owner: u64) {
        if let Some(key) = self.keys.get_mut(&owner) {
            key.handles -= 1;
            if key.handles == 0 {
                self.keys.remove(&owner);
            }
        }
    }

    /// A key, and how many gateways there are.
    pub(super) fn key_mut(&mut self, owner: u64) -> (&mut KeyState, Standing) {
        (self.keys.entry(owner).or_default(), self.standing)
    }

    /// How many gateways there are.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Counts since the start.
    pub fn counts(&self) -> SharesCounts {
        self.counts
    }

    /// Takes a message that arrived on the subject of usage. Whatever it is, it is counted and never an error.
    pub fn receive(&mut self, message: &[u8], now_ns: u64) {
        match UsageReport::decode(message) {
            Ok(report) if report.gateway == self.own => {}
            Ok(report) => self.receive_report(&report, now_ns),
            Err(MessageError::Version(_)) => self.counts.newer += 1,
            Err(_) => self.counts.malformed += 1,
        }
    }

    fn receive_report(&mut self, report: &UsageReport, now_ns: u64) {
        let (id, before) = (report.gateway, self.standing);
        let from = match self.peers.hear(report, self.own, now_ns) {
            Heard::Next(from) => from,
            Heard::Stale => {
                self.counts.stale += 1;
                return;
            }
            Heard::OverLimit => {
                self.counts.over_limit += 1;
                return;
            }
        };
        self.counts.received += 1;
        if report.is_complete {
            self.keys
                .values_mut()
                .for_each(|key| key.receive_nothing(id));
        }
        let arrival = Arrival {
            before,
            from,
            now_ns,
        };
        for entry in &report.entries {
            match self.keys.get_mut(&entry.owner) {
                Some(key) => key.receive(id, *entry, arrival),
                None => self.counts.unknown_keys += 1,
            }
        }
        if report.is_last {
            self.keys.values_mut().for_each(|key| key.forget(id));
        }
        self.update_standing(now_ns);
        if !before.is_whole() && self.standing.is_whole() {
            for key in self.keys.values_mut() {
                key.requests.return_assumed(now_ns);
                key.tokens.return_assumed(now_ns);
            }
        }
    }

    /// The time passes: to be called each [`INTERVAL`]. The result is to be published, also without a connection.
    pub fn tick(&mut self, is_connected: bool, now_ns: u64) -> UsageReport {
        if is_connected {
            self.connected_ns.get_or_insert(now_ns);
        }
        let dead = self.peers.look(is_connected, now_ns);
        for id in &dead {
            self.counts.dead += 1;
            for key in self.keys.values_mut() {
                key.forget(*id);
            }
        }
        self.update_standing(now_ns);
        if !dead.is_empty() && self.standing.is_whole() {
            for key in self.keys.values_mut() {
                key.requests.keep_assumed();
                key.tokens.keep_assumed();
            }
        }
        self.report(false, now_ns)
    }

    /// The last report: the others share this gateway's part at once.
    pub fn leave(&mut self, now_ns: u64) -> UsageReport {
        self.report(true, now_ns)
    }

    fn update_standing(&mut self, now_ns: u64) {
        let window_ns = WINDOW.as_nanos() as u64;
        let is_joining = match self.connected_ns {
            Some(since) => now_ns.saturating_sub(since) < window_ns,
            None => now_ns < CONNECT_MAX_NS,
        };
        self.standing = self.peers.standing(is_joining, now_ns);
        let lost = self.peers.lost_count(now_ns);
        let more = lost.saturating_sub(self.lost);
        self.lost = lost;
        for key in self.keys.values_mut() {
            if more > 0 {
                key.requests.assume_shares(more, self.standing, now_ns);
                key.tokens.assume_shares(more, self.standing, now_ns);
            }
            key.count_others(|id| self.peers.is_heard(id, now_ns));
        }
    }

    fn report(&mut self, is_last: bool, now_ns: u64) -> UsageReport {
        self.sequence += 1;
        let from = self.cursor.map_or(Bound::Unbounded, Bound::Excluded);
        let keys = self.keys.range_mut((from, Bound::Unbounded));
        let mut used = keys.filter_map(|(&owner, key)| key.report(owner, now_ns));
        let entries: Vec<_> = used.by_ref().take(USAGE_ENTRIES_MAX).collect();
        let has_more = used.next().is_some();
        let is_complete = self.cursor.is_none() && !has_more;
        let last = entries.last().map(|entry| entry.owner);
        self.cursor = last.filter(|_| has_more);
        UsageReport {
            gateway: self.own,
            sequence: self.sequence,
            is_last,
            is_complete,
            seen: self.peers.send(self.sequence, now_ns),
            entries,
        }
    }
}
