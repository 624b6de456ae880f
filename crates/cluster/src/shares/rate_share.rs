//! A key's bucket of requests or tokens, of which a gateway may use its share.
//!
//! The state is the theoretical arrival time of the generic cell rate algorithm: when the bucket would be full again. All
//! amounts are times that the bucket takes to fill by them, so that a rate may change while the bucket stays.

use super::assumed::Assumed;
use super::recent::Recent;
use super::standing::Standing;
use std::num::NonZeroU32;
use std::time::Duration;

/// The unit of rates, and the capacity of a bucket in time.
pub(super) const MINUTE_NS: u64 = 60_000_000_000;

/// The largest charge of one report: a wrong count blocks a key for a few minutes, and not for ever.
const REPORTED_NS_MAX: u64 = 10 * MINUTE_NS;

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The amount is available after this time, if no other request takes the amount first.
    Wait(Duration),
    /// The amount exceeds the bucket's capacity.
    Never,
}

/// A bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateShare {
    /// Nanoseconds since the epoch.
    full_at_ns: u64,
    /// Part of the charges that silent gateways are taken to have used.
    assumed: Assumed,
    /// Charges of this gateway that others may not know.
    recent: Recent,
    /// All that this gateway has taken, in requests or tokens.
    pub(super) total: u64,
}

impl RateShare {
    /// Time until the bucket is full.
    pub(super) fn full_in_ns(&self, now_ns: u64) -> u64 {
        self.full_at_ns.saturating_sub(now_ns)
    }

    /// Time until the bucket would be full without the charges of silent gateways.
    pub(super) fn known_full_in_ns(&self, now_ns: u64) -> u64 {
        let assumed_ns = self.assumed.left_ns(now_ns);
        self.full_in_ns(now_ns).saturating_sub(assumed_ns)
    }

    /// Takes `cost`, or nothing.
    pub(super) fn try_take(
        &mut self,
        per_min: NonZeroU32,
        cost: u64,
        standing: Standing,
        now_ns: u64,
    ) -> Result<(), Shortage> {
        let step_ns = step_ns(per_min, cost);
        if step_ns > MINUTE_NS {
            return Err(Shortage::Never);
        }
        let charge_ns = standing.with_silent(step_ns);
        let used_ns = self.full_in_ns(now_ns);
        // What fits the limit is admitted at last: by an empty bucket, whose charge then takes longer than a minute.
        let lacking_ns = used_ns.saturating_sub(MINUTE_NS - charge_ns.min(MINUTE_NS));
        let (recent_ns, rest_ns) = self.recent_and_rest_ns(now_ns);
        let share_ns = rest_ns / u64::from(standing.heard.max(1));
        let is_within = !standing.is_joining && recent_ns.saturating_add(charge_ns) <= share_ns;
        let window_ns = match recent_ns == 0 || is_within {
            true => 0,
            false => self.recent.empty_in_ns(now_ns),
        };
        let wait_ns = lacking_ns.max(window_ns);
        if wait_ns > 0 {
            return Err(Shortage::Wait(Duration::from_nanos(wait_ns)));
        }
        self.recent.record(charge_ns, now_ns, u64::saturating_add);
        self.total = self.total.saturating_add(cost);
        self.charge(step_ns, standing, now_ns);
        Ok(())
    }

    /// Charges of the last window, and what was left before them.
    fn recent_and_rest_ns(&self, now_ns: u64) -> (u64, u64) {
        let recent_ns = self.recent.values(now_ns).sum::<u64>();
        let before_ns = self.full_in_ns(now_ns).saturating_sub(recent_ns);
        (recent_ns, MINUTE_NS.saturating_sub(before_ns))
    }

    /// Takes `cost` also when that is more than there is: a debt, paid by waiting.
    pub(super) fn take_always(
        &mut self,
        per_min: NonZeroU32,
        cost: u64,
        standing: Standing,
        now_ns: u64,
    ) {
        self.total = self.total.saturating_add(cost);
        self.charge(step_ns(per_min, cost), standing, now_ns);
    }

    /// Charges what a gateway that is heard has taken.
    pub(super) fn charge_other(
        &mut self,
        per_min: NonZeroU32,
        cost: u64,
        standing: Standing,
        now_ns: u64,
    ) {
        let step_ns = step_ns(per_min, cost).min(REPORTED_NS_MAX);
        self.charge(step_ns, standing, now_ns);
    }

    /// Charges what a gateway has taken while it was silent, less what it was taken to have used.
    pub(super) fn charge_returned(&mut self, per_min: NonZeroU32, cost: u64, now_ns: u64) {
        let step_ns = step_ns(per_min, cost).min(REPORTED_NS_MAX);
        let covered_ns = self.assumed.take(step_ns, now_ns);
        self.fill_later(step_ns - covered_ns, now_ns);
    }

    /// Charges what a gateway had taken before its first report of this key arrived: the part that is still missing from
    /// its bucket.
    pub(super) fn charge_first(
        &mut self,
        per_min: NonZeroU32,
        cost: u64,
        full_in_ns: u64,
        now_ns: u64,
    ) {
        let missing_ns = full_in_ns.min(step_ns(per_min, cost));
        self.fill_later(missing_ns.min(REPORTED_NS_MAX), now_ns);
    }

    /// Takes over the bucket of a gateway that was there before this one, and counts for all of them.
    pub(super) fn join(&mut self, full_in_ns: u64, now_ns: u64) {
        let full_in_ns = full_in_ns.min(REPORTED_NS_MAX);
        self.full_at_ns = self.full_at_ns.max(now_ns.saturating_add(full_in_ns));
    }

    /// So many of all gateways are not heard any more: each is taken to have used its share of the rest since its last
    /// report.
    pub(super) fn assume_shares(&mut self, silent: u32, standing: Standing, now_ns: u64) {
        let (_, rest_ns) = self.recent_and_rest_ns(now_ns);
        let part_ns = rest_ns / u64::from(standing.gateways.max(1)) * u64::from(silent);
        self.assumed
            .add(self.full_at_ns.max(now_ns), part_ns, now_ns);
        self.fill_later(part_ns, now_ns);
    }

    /// Returns what silent gateways were taken to have used, when all are heard again.
    pub(super) fn return_assumed(&mut self, now_ns: u64) {
        let left_ns = self.assumed.left_ns(now_ns);
        self.full_at_ns = self.full_at_ns.saturating_sub(left_ns);
        self.assumed.clear();
    }

    /// Keeps the charges of silent gateways: they have no share any more, and may have used it.
    pub(super) fn keep_assumed(&mut self) {
        self.assumed.clear();
    }

    fn charge(&mut self, step_ns: u64, standing: Standing, now_ns: u64) {
        let charge_ns = standing.with_silent(step_ns);
        let begin_ns = self.full_at_ns.max(now_ns);
        self.assumed.add(begin_ns, charge_ns - step_ns, now_ns);
        self.fill_later(charge_ns, now_ns);
    }

    fn fill_later(&mut self, charge_ns: u64, now_ns: u64) {
        self.full_at_ns = self.full_at_ns.max(now_ns).saturating_add(charge_ns);
    }
}

/// How long the bucket takes to fill by `cost`. Rounded down, so that a full bucket always gives the whole rate.
pub(super) fn step_ns(per_min: NonZeroU32, cost: u64) -> u64 {
    let step_ns = (u128::from(cost) * u128::from(MINUTE_NS)) / u128::from(per_min.get());
    u64::try_from(step_ns).unwrap_or(u64::MAX)
}
