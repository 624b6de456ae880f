//! A rate limit in one number: the generic cell rate algorithm (ITU-T I.371, annex A, as virtual scheduling).
//!
//! The number is the *theoretical arrival time*: when the bucket would be full again without further requests. Taking
//! `cost` moves the number `cost` emission intervals into the future, counted from now if the number lies in the
//! past. The bucket holds one minute's worth, so an amount is available while the number stays at most a minute ahead
//! of now, and the excess is exactly the time to wait.
//!
//! A cluster divides the rate by the number of its gateways: each multiplies what it charges. A full or half empty bucket is a
//! time and so stays what it is when the number changes.
//!
//! Check and take are one atomic step: of two callers that want the last unit, one gets the unit.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The unit of rates, and the capacity of a bucket in time.
const MINUTE_NS: u64 = 60_000_000_000;

/// A rate, of which a gateway has its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// The rate of all gateways together.
    pub(crate) per_min: NonZeroU32,
    /// Number of gateways; 1 outside a cluster.
    pub(crate) gateways: NonZeroU32,
}

/// A bucket. The rate is an argument, because the rate may change while the bucket stays.
#[derive(Debug, Default)]
pub(crate) struct Gcra {
    /// Nanoseconds since the epoch. No other value is published with this one, so `Relaxed` is enough.
    full_at_ns: AtomicU64,
}

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotYet {
    /// The amount is available after this time, if no other request takes the amount first.
    Wait(Duration),
    /// The amount exceeds the bucket's capacity.
    Never,
}

impl Gcra {
    /// Takes `cost`, or nothing. More than this gateway's part of a minute is a debt that a full bucket takes, as long as the
    /// whole rate has that much.
    pub(crate) fn try_take(&self, rate: Rate, cost: u64, now_ns: u64) -> Result<(), NotYet> {
        let gateways = NonZeroU32::MIN;
        if step_ns(Rate { gateways, ..rate }, cost) > MINUTE_NS {
            return Err(NotYet::Never);
        }
        let step_ns = step_ns(rate, cost);
        let needed_ns = step_ns.min(MINUTE_NS);
        let after = |full_at_ns: u64| full_at_ns.max(now_ns).saturating_add(needed_ns);
        let limit_ns = now_ns.saturating_add(MINUTE_NS);
        self.full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at_ns| {
                let is_available = after(full_at_ns) <= limit_ns;
                is_available.then(|| full_at_ns.max(now_ns).saturating_add(step_ns))
            })
            .map(drop)
            .map_err(|full_at_ns| NotYet::Wait(Duration::from_nanos(after(full_at_ns) - limit_ns)))
    }

    /// Takes `cost` also when that is more than there is: a debt, paid by waiting.
    pub(crate) fn take_always(&self, rate: Rate, cost: u64, now_ns: u64) {
        let step_ns = step_ns(rate, cost);
        let _ = self
            .full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at_ns| {
                Some(full_at_ns.max(now_ns).saturating_add(step_ns))
            });
    }
}

/// How long the bucket takes to fill by `cost`. Rounded down, so that a full bucket always gives the whole rate.
fn step_ns(rate: Rate, cost: u64) -> u64 {
    // The product may have more than 128 bits.
    let charged_ns =
        (u128::from(cost) * u128::from(MINUTE_NS)).saturating_mul(u128::from(rate.gateways.get()));
    u64::try_from(charged_ns / u128::from(rate.per_min.get())).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "tests/gcra.rs"]
mod tests;
