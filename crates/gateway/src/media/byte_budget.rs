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
        let mut reserved = self.reserve_none();
        reserved.resize(bytes, max).then_some(reserved)
    }

    /// A reservation of no bytes yet.
    pub fn reserve_none(self: &Arc<Self>) -> ByteReservation {
        ByteReservation {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Bytes that are reserved.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl ByteReservation {
    /// Bytes that are reserved here.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the number of bytes. False, and nothing changed: with more bytes here, all reservations together would have more
    /// than `max`.
    pub fn resize(&mut self, bytes: u64, max: u64) -> bool {
        let used = &self.budget.used;
        if bytes < self.bytes {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            let add = |used: u64| used.checked_add(more).filter(|&sum| sum <= max);
            if used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
                .is_err()
            {
                return false;
            }
        }
        self.bytes = bytes;
        true
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

    #[test]
    fn reservation_grows_within_the_bound_and_shrinks() {
        let budget = Arc::new(ByteBudget::default());
        let (mut one, mut other) = (budget.reserve_none(), budget.reserve_none());
        assert!(one.resize(6, 10) && other.resize(3, 10));
        assert!(!one.resize(8, 10), "two more than there are");
        assert_eq!((one.bytes(), budget.used()), (6, 9));
        assert!(one.resize(2, 0), "fewer bytes need no room");
        assert!(other.resize(8, 10));
        assert_eq!(budget.used(), 10);
        drop((one, other));
        assert_eq!(budget.used(), 0);
    }
}
