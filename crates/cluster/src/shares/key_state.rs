//! One key: buckets, open choices, and what other gateways have reported.

use super::rate_share::RateShare;
use super::standing::Standing;
use super::stream_share::StreamShare;
use crate::messages::UsageEntry;
use crate::names::InstanceId;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// Limits of a key, for all gateways together; `None` = no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedLimits {
    /// Requests per minute.
    pub requests_per_min: Option<NonZeroU32>,
    /// Tokens per minute.
    pub tokens_per_min: Option<NonZeroU32>,
    /// Choices that are open at one time.
    pub concurrent_streams: Option<NonZeroU32>,
}

/// State of one key.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) limits: SharedLimits,
    pub(super) requests: RateShare,
    pub(super) tokens: RateShare,
    pub(super) streams: StreamShare,
    /// By gateway: the last report. At most [`super::GATEWAYS_MAX`].
    reported: BTreeMap<InstanceId, UsageEntry>,
    /// Handles of this key.
    pub(super) handles: usize,
}

/// How a report is charged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Before the report arrived.
    pub(super) before: Standing,
    /// Earlier state of the gateway.
    pub(super) from: Sender,
    pub(super) now_ns: u64,
}

/// The gateway of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// Not known before.
    New,
    /// Silent before.
    Silent,
    /// Heard before.
    Heard,
}

impl KeyState {
    /// Report of this gateway about the key; `None`: nothing that matters to others.
    pub(super) fn report(&mut self, owner: u64, now_ns: u64) -> Option<UsageEntry> {
        let open = self.streams.report(now_ns);
        let is_limited = self.limits.concurrent_streams.is_some();
        let entry = UsageEntry {
            owner,
            requests: self.requests.total,
            tokens: self.tokens.total,
            requests_full_in: Duration::from_nanos(self.requests.known_full_in_ns(now_ns)),
            tokens_full_in: Duration::from_nanos(self.tokens.known_full_in_ns(now_ns)),
            open: if is_limited { open } else { 0 },
        };
        let is_idle = entry.requests_full_in.is_zero() && entry.tokens_full_in.is_zero();
        (!is_idle || entry.open > 0).then_some(entry)
    }

    /// Charges what another gateway has reported.
    pub(super) fn receive(&mut self, gateway: InstanceId, entry: UsageEntry, arrival: Arrival) {
        let seen = self.reported.insert(gateway, entry);
        let parts = |of: fn(&UsageEntry) -> (u64, Duration)| {
            let (total, full_in) = of(&entry);
            (seen.as_ref().map(|seen| of(seen).0), total, full_in)
        };
        if let Some(per_min) = self.limits.requests_per_min {
            let counts = parts(|entry| (entry.requests, entry.requests_full_in));
            charge(&mut self.requests, per_min, counts, arrival);
        }
        if let Some(per_min) = self.limits.tokens_per_min {
            let counts = parts(|entry| (entry.tokens, entry.tokens_full_in));
            charge(&mut self.tokens, per_min, counts, arrival);
        }
    }

    /// The gateway has reported all its keys, and not this one.
    pub(super) fn receive_nothing(&mut self, gateway: InstanceId) {
        if let Some(seen) = self.reported.get_mut(&gateway) {
            seen.open = 0;
        }
    }

    /// The gateway has no share any more.
    pub(super) fn forget(&mut self, gateway: InstanceId) {
        self.reported.remove(&gateway);
    }

    /// Counts the open choices of the gateways that are heard.
    pub(super) fn count_others(&mut self, is_heard: impl Fn(InstanceId) -> bool) {
        let heard = self.reported.iter().filter(|(id, _)| is_heard(**id));
        self.streams.others = heard.fold(0, |sum, (_, seen)| sum.saturating_add(seen.open));
    }
}

fn charge(
    share: &mut RateShare,
    per_min: NonZeroU32,
    (seen, total, full_in): (Option<u64>, u64, Duration),
    arrival: Arrival,
) {
    let (before, now_ns) = (arrival.before, arrival.now_ns);
    let Some(seen) = seen else {
        let full_in_ns = u64::try_from(full_in.as_nanos()).unwrap_or(u64::MAX);
        match arrival.from == Sender::New && before.is_joining {
            true => share.join(full_in_ns, now_ns),
            false => share.charge_first(per_min, total, full_in_ns, now_ns),
        }
        return;
    };
    let more = total.saturating_sub(seen);
    match arrival.from {
        Sender::Heard => share.charge_other(per_min, more, before, now_ns),
        Sender::New | Sender::Silent => share.charge_returned(per_min, more, now_ns),
    }
}
