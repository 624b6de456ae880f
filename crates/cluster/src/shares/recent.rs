//! Amounts of the last [`WINDOW`].

use super::WINDOW;

/// Resolution of the window.
const SLOT_NS: u64 = 100_000_000;
/// Slots of a window, and the current one.
const SLOTS: usize = (WINDOW.as_nanos() as u64 / SLOT_NS) as usize + 1;

/// A number for each slot in which there was one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    /// Number of the slot since the epoch, counted from 1, and the value; 0: unused.
    slots: [(u64, u64); SLOTS],
}

impl Recent {
    /// Combines `value` with the current slot's.
    pub(super) fn record(&mut self, value: u64, now_ns: u64, combine: fn(u64, u64) -> u64) {
        let number = slot_number(now_ns);
        let slot = &mut self.slots[(number % SLOTS as u64) as usize];
        *slot = match *slot {
            (same, before) if same == number => (number, combine(before, value)),
            _ => (number, value),
        };
    }

    /// The values of the last window.
    pub(super) fn values(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let number = slot_number(now_ns);
        let is_recent = move |slot: &&(u64, u64)| slot.0 > 0 && slot.0 + SLOTS as u64 > number;
        self.slots.iter().filter(is_recent).map(|slot| slot.1)
    }

    /// Time until the window has no value; zero if there is none.
    pub(super) fn empty_in_ns(&self, now_ns: u64) -> u64 {
        let last = self.slots.iter().map(|slot| slot.0).max().unwrap_or(0);
        let end = (last + SLOTS as u64 - 1).saturating_mul(SLOT_NS);
        match last {
            0 => 0,
            _ => end.saturating_sub(now_ns),
        }
    }
}

fn slot_number(now_ns: u64) -> u64 {
    now_ns / SLOT_NS + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_for_a_window_and_are_gone_after_one_slot_more() {
        let mut recent = Recent::default();
        let sum = |recent: &Recent, now| recent.values(now).sum::<u64>();
        let window = WINDOW.as_nanos() as u64;
        for at in [0, 1, SLOT_NS - 1, 5 * SLOT_NS + 3] {
            recent.record(2, at, u64::saturating_add);
        }
        assert_eq!(sum(&recent, 5 * SLOT_NS + 3), 8);
        assert_eq!(sum(&recent, window - 1 + SLOT_NS), 8, "a window later");
        assert_eq!(sum(&recent, window + SLOT_NS), 2);
        let empty_in = recent.empty_in_ns(window);
        assert_eq!(sum(&recent, window + empty_in - 1), 2);
        assert_eq!(sum(&recent, window + empty_in), 0);
        assert_eq!(recent.empty_in_ns(window * 9), 0);
    }
}
