//! Bytes that several requests share: each reserves what it needs, and the drop of the reservation returns it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are reserved now. The bound comes with each reservation, since settings change while the server runs.
#[derive(Debug, Default)]
pub struct ByteBudget {
    used: AtomicU64,
}

/// Reserved bytes.
#[derive(Debug)]
pub struct ByteReservation {
    budget: Arc<ByteBudget>,
    bytes: u64,
}

impl ByteBudget {
    /// Reserves bytes, if all reservations together then have at most `max`.
    pub fn reserve(self: &Arc<Self>, bytes: u64, max: u64) -> Option<ByteReservation> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(ByteReservation {
            budget: Arc::clone(self),
            bytes,
        })
    }

    /// Bytes that are reserved.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_share_the_bound_and_return_their_bytes() {
        let budget = Arc::new(ByteBudget::default());
        let first = budget.reserve(6, 10).expect("there is room");
        assert!(budget.reserve(5, 10).is_none());
        assert!(budget.reserve(u64::MAX, u64::MAX).is_none(), "no overflow");
        let second = budget.reserve(4, 10).expect("exactly full");
        assert_eq!(budget.used(), 10);
        assert!(budget.reserve(0, 9).is_none(), "the bound became smaller");
        drop(first);
        assert_eq!(budget.used(), 4);
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
