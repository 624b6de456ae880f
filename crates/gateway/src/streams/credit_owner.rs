//! The subscriber whose reading returns credit.
//!
//! At first the subscriber that opened the stream. When the owner has left, the next subscriber that reads takes
//! over, whether the subscriber resumed the stream or was attached before. A subscriber that attaches with
//! `?govern=1` takes the credit from the owner. The credit of an owner that took nothing for too long is revoked: the
//! stream continues as if that subscriber had left, until a subscriber reads.

use super::stream_metrics::SocketMetrics;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No owner.
const FREE: u64 = 0;

/// The credit owner of a stream.
#[derive(Debug, Default)]
pub(crate) struct CreditOwner {
    last_id: AtomicU64,
    /// The owner's id, or `FREE`.
    now: AtomicU64,
    revoked: AtomicBool,
    taken: SocketMetrics,
}

/// A subscriber's number, unique within the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscriberId(u64);

impl CreditOwner {
    /// An id for one more subscriber.
    pub(crate) fn next_id(&self) -> SubscriberId {
        SubscriberId(self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Makes a subscriber the owner.
    pub(crate) fn take_credit(&self, id: SubscriberId) {
        self.now.store(id.0, Ordering::Relaxed);
    }

    /// Whether a subscriber is the owner; without an owner, the subscriber becomes the owner.
    pub(crate) fn owns_credit(&self, id: SubscriberId) -> bool {
        let now = self.now.load(Ordering::Relaxed);
        now == id.0
            || now == FREE
                && self
                    .now
                    .compare_exchange(FREE, id.0, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
    }

    /// A subscriber left. True for the owner.
    pub(crate) fn detach_subscriber(&self, id: SubscriberId) -> bool {
        self.now
            .compare_exchange(id.0, FREE, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Revokes the credit of an owner that took nothing for too long.
    pub(crate) fn revoke_credit(&self) {
        self.revoked.store(true, Ordering::Relaxed);
        self.now.store(FREE, Ordering::Relaxed);
    }

    /// Whether credit was ever revoked.
    pub(crate) fn was_revoked(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    /// Statistics of the connections of the owners.
    pub(crate) fn socket_metrics(&self) -> &SocketMetrics {
        &self.taken
    }

    /// Whether there is an owner.
    pub(crate) fn is_taken(&self) -> bool {
        self.now.load(Ordering::Relaxed) != FREE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_moves_to_the_next_subscriber() {
        let credit_owner = CreditOwner::default();
        let [a, b, c] = std::array::from_fn(|_| credit_owner.next_id());
        assert!(!credit_owner.is_taken());
        assert!(credit_owner.owns_credit(a) && !credit_owner.owns_credit(b));
        assert!(!credit_owner.detach_subscriber(b), "it never was");
        assert!(credit_owner.detach_subscriber(a) && !credit_owner.is_taken());
        assert!(credit_owner.owns_credit(b), "who reads on");
        credit_owner.take_credit(c);
        assert!(credit_owner.owns_credit(c) && !credit_owner.owns_credit(b));
        assert!(!credit_owner.detach_subscriber(b) && credit_owner.detach_subscriber(c));
        assert!(credit_owner.owns_credit(c) && !credit_owner.was_revoked());
        credit_owner.revoke_credit();
        assert!(credit_owner.was_revoked() && !credit_owner.is_taken());
        assert!(credit_owner.owns_credit(c), "it reads again");
    }
}
