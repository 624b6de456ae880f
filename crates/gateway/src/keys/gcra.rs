//! A rate limit in one number: the generic cell rate algorithm (ITU-T I.371, annex A, as virtual scheduling).
//!
//! The number is the *theoretical arrival time*: when the bucket would be full again without further requests. Taking
//! `cost` moves the number `cost` emission intervals into the future, counted from now if the number lies in the
//! past. The bucket holds one minute's worth, so an amount is available while the number stays at most a minute ahead
//! of now, and the excess is exactly the time to wait.
//!
//! Check and take are one atomic step: of two callers that want the last unit, one gets the unit.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The unit of rates, and the capacity of a bucket in time.
const MINUTE_NS: u64 = 60_000_000_000;

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
    /// Takes `cost`, or nothing.
    pub(crate) fn try_take(
        &self,
        per_min: NonZeroU32,
        cost: u64,
        now_ns: u64,
    ) -> Result<(), NotYet> {
        let step_ns = step_ns(per_min, cost);
        if step_ns > MINUTE_NS {
            return Err(NotYet::Never);
        }
        let after = |full_at_ns: u64| full_at_ns.max(now_ns).saturating_add(step_ns);
        let limit_ns = now_ns.saturating_add(MINUTE_NS);
        self.full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at_ns| {
                Some(after(full_at_ns)).filter(|&next_ns| next_ns <= limit_ns)
            })
            .map(drop)
            .map_err(|full_at_ns| NotYet::Wait(Duration::from_nanos(after(full_at_ns) - limit_ns)))
    }

    /// Takes `cost` also when that is more than there is: a debt, paid by waiting.
    pub(crate) fn take_always(&self, per_min: NonZeroU32, cost: u64, now_ns: u64) {
        let step_ns = step_ns(per_min, cost);
        let _ = self
            .full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at_ns| {
                Some(full_at_ns.max(now_ns).saturating_add(step_ns))
            });
    }
}

/// How long the bucket takes to fill by `cost`. Rounded down, so that a full bucket always gives the whole rate.
fn step_ns(per_min: NonZeroU32, cost: u64) -> u64 {
    let step_ns = (u128::from(cost) * u128::from(MINUTE_NS)) / u128::from(per_min.get());
    u64::try_from(step_ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "tests/gcra.rs"]
mod tests;
