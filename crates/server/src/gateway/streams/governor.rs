//! Which of a stream's readers returns credit.
//!
//! One at a time: the opener's. When it has left, the next one to ask is it, whether it came back or
//! was there all the while; so credit follows whoever still reads. A reader that says so when it comes
//! (`?govern=1`) takes it from whoever has it. A reader that took nothing for too long is let go of: the
//! stream goes on as if it had left, until somebody reads.

use super::measures::Taken;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Nobody.
const FREE: u64 = 0;

/// The credit owner of a stream.
#[derive(Debug, Default)]
pub(crate) struct Governor {
    seats: AtomicU64,
    /// The seat that governs, or `FREE`.
    now: AtomicU64,
    let_go: AtomicBool,
    taken: Taken,
}

/// One reader's number. No other reader of the stream ever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat(u64);

impl Governor {
    /// A seat for one more reader.
    pub(crate) fn seat(&self) -> Seat {
        Seat(self.seats.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// From now on it is this one.
    pub(crate) fn take(&self, seat: Seat) {
        self.now.store(seat.0, Ordering::Relaxed);
    }

    /// Whether it is this one; it is, from now on, if it was nobody.
    pub(crate) fn governs(&self, seat: Seat) -> bool {
        let now = self.now.load(Ordering::Relaxed);
        now == seat.0
            || now == FREE
                && self
                    .now
                    .compare_exchange(FREE, seat.0, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
    }

    /// The reader left. True when it was the one: now it is nobody.
    pub(crate) fn leave(&self, seat: Seat) -> bool {
        self.now
            .compare_exchange(seat.0, FREE, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Whoever it is took nothing for too long: now it is nobody.
    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::Relaxed);
        self.now.store(FREE, Ordering::Relaxed);
    }

    /// Whether one was let go of, ever.
    pub(crate) fn has_let_go(&self) -> bool {
        self.let_go.load(Ordering::Relaxed)
    }

    /// How the connections of those who govern took what they were given.
    pub(crate) fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Whether it is anybody.
    pub(crate) fn is_taken(&self) -> bool {
        self.now.load(Ordering::Relaxed) != FREE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_governs_and_the_next_follows() {
        let governor = Governor::default();
        let [a, b, c] = std::array::from_fn(|_| governor.seat());
        assert!(!governor.is_taken());
        assert!(governor.governs(a) && !governor.governs(b));
        assert!(!governor.leave(b), "it never was");
        assert!(governor.leave(a) && !governor.is_taken());
        assert!(governor.governs(b), "who reads on");
        governor.take(c);
        assert!(governor.governs(c) && !governor.governs(b));
        assert!(!governor.leave(b) && governor.leave(c));
        assert!(governor.governs(c) && !governor.has_let_go());
        governor.let_go();
        assert!(governor.has_let_go() && !governor.is_taken());
        assert!(governor.governs(c), "it reads again");
    }
}
