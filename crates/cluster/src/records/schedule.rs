//! Streams that are to be looked at, by time.

use std::collections::BTreeSet;
use std::time::Instant;

/// An entry for each stream at most; the stream has the time of its entry.
#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeSet<(Instant, u128)>);

impl Schedule {
    /// Sets the time of a stream; an earlier one stays.
    pub(super) fn set(&mut self, due: &mut Option<Instant>, id: u128, at: Instant) {
        if let Some(before) = *due {
            if before <= at {
                return;
            }
            self.0.remove(&(before, id));
        }
        *due = Some(at);
        self.0.insert((at, id));
    }

    pub(super) fn clear(&mut self, due: &mut Option<Instant>, id: u128) {
        if let Some(before) = due.take() {
            self.0.remove(&(before, id));
        }
    }

    /// The next stream that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u128> {
        let first = self.0.first().copied().filter(|(at, _)| *at <= now)?;
        self.0.remove(&first);
        Some(first.1)
    }

    /// When the next stream is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }
}
