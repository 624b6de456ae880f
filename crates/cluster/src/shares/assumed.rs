//! The part of a bucket's charges that silent gateways are taken to have used.
//!
//! A charge occupies an interval of time: from when the bucket would have been full before, until when it would be
//! afterwards. What lies before now has flowed back. So an assumed part is stored at its interval's begin, and what is left
//! of it is never overestimated: later it is replaced by what was really used, or returned.

use std::time::Duration;

/// Resolution.
const SLOT_NS: u64 = Duration::from_secs(4).as_nanos() as u64;
/// Slots: more than a minute. What lies later is never returned.
const SLOTS: u64 = 16;

/// Assumed charges by interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Assumed {
    /// Number of the slot since the epoch, and the charges in it.
    slots: [(u64, u64); SLOTS as usize],
}

impl Assumed {
    /// Adds a charge that begins at this time, which is not before `now_ns`.
    pub(super) fn add(&mut self, begin_ns: u64, charge_ns: u64, now_ns: u64) {
        let end = now_ns / SLOT_NS + SLOTS;
        let (mut at_ns, mut left_ns) = (begin_ns, charge_ns);
        while left_ns > 0 && at_ns / SLOT_NS < end {
            let number = at_ns / SLOT_NS;
            let part_ns = left_ns.min((number + 1) * SLOT_NS - at_ns);
            let slot = &mut self.slots[(number % SLOTS) as usize];
            let before_ns = if slot.0 == number { slot.1 } else { 0 };
            *slot = (number, before_ns + part_ns);
            at_ns += part_ns;
            left_ns -= part_ns;
        }
    }

    /// Amount that has not flowed back, at least.
    pub(super) fn left_ns(&self, now_ns: u64) -> u64 {
        let parts = self.slots.iter().map(|slot| part_left_ns(*slot, now_ns));
        parts.sum()
    }

    /// Takes up to `most_ns` out, the latest first; what was taken.
    pub(super) fn take(&mut self, most_ns: u64, now_ns: u64) -> u64 {
        self.slots
            .sort_unstable_by_key(|slot| std::cmp::Reverse(slot.0));
        let mut taken_ns = 0;
        for slot in &mut self.slots {
            let part_ns = part_left_ns(*slot, now_ns).min(most_ns - taken_ns);
            slot.1 -= part_ns;
            taken_ns += part_ns;
        }
        let sorted = std::mem::take(&mut self.slots);
        for slot in sorted.into_iter().filter(|slot| slot.1 > 0) {
            let place = &mut self.slots[(slot.0 % SLOTS) as usize];
            if place.0 <= slot.0 {
                *place = slot;
            }
        }
        taken_ns
    }

    /// Keeps all charges for ever.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn part_left_ns((number, charge_ns): (u64, u64), now_ns: u64) -> u64 {
    match number.cmp(&(now_ns / SLOT_NS)) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => charge_ns.saturating_sub(now_ns % SLOT_NS),
        std::cmp::Ordering::Greater => charge_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn charges_flow_back_in_their_order() {
        let mut assumed = Assumed::default();
        assumed.add(10 * SECOND, 10 * SECOND, 10 * SECOND);
        assumed.add(40 * SECOND, SECOND, 10 * SECOND);
        let left = |assumed: &Assumed, at: u64| assumed.left_ns(at * SECOND) / SECOND;
        assert_eq!(left(&assumed, 8), 11);
        assert_eq!(left(&assumed, 12), 9);
        assert_eq!(left(&assumed, 16), 5);
        assert_eq!(left(&assumed, 30), 1);
        assert_eq!(left(&assumed, 44), 0);
        assert_eq!(assumed.take(3 * SECOND, 12 * SECOND), 3 * SECOND);
        assert_eq!(left(&assumed, 12), 6);
        assert_eq!(left(&assumed, 16), 2, "the latest were taken");
        assert_eq!(assumed.take(u64::MAX, 12 * SECOND), 6 * SECOND);
        assert_eq!(left(&assumed, 12), 0);
    }

    proptest! {
        /// Beside a list of nanosecond-exact intervals: never more is left.
        #[test]
        fn left_part_is_never_overestimated(
            moves in prop::collection::vec((0..9 * SECOND, 0..9 * SECOND, 0..20 * SECOND), 1..60),
        ) {
            let (mut assumed, mut exact, mut now) = (Assumed::default(), Vec::new(), 0);
            let mut full_at = 0;
            for (pause, own, charge) in moves {
                now += pause;
                full_at = now.max(full_at);
                assumed.add(full_at, charge, now);
                exact.push((full_at, full_at + charge));
                full_at += charge + own;
                let left: u64 = exact.iter().map(|(from, to)| to.saturating_sub(now.max(*from))).sum();
                prop_assert!(assumed.left_ns(now) <= left);
            }
        }
    }
}
