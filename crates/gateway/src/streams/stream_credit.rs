//! Credit of a stream: readers return credit, and a stream whose readers return none is parked.
//!
//! One subscriber owns the credit: its reading returns credit. At first the subscriber that opened the stream. When the
//! owner has left, the next subscriber that reads takes over, whether the subscriber resumed the stream or was attached
//! before. A subscriber that attaches with `?govern=1` takes the credit from the owner. The credit of an owner that took
//! nothing for too long is revoked: the stream continues as if that subscriber had left, until a subscriber reads.

use super::stream_record::StreamRecord;
use generate::stream_source::ChoiceLog;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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

/// Frames of the credit owners, timed when the kernel took them.
#[derive(Debug, Default)]
pub(crate) struct SocketMetrics {
    pub(super) frames: AtomicU64,
    pub(super) gaps: AtomicU64,
    pub(super) gaps_ns: AtomicU64,
    pub(super) gap_max_ns: AtomicU64,
    pub(super) stalled_ns: AtomicU64,
}

impl SocketMetrics {
    /// A frame with tokens was taken, so long after the one before; `None`: this reader's first.
    pub(crate) fn record_frame(&self, after: Option<Duration>) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        if let Some(gap) = after {
            self.gaps.fetch_add(1, Ordering::Relaxed);
            self.gaps_ns
                .fetch_add(as_nanoseconds(gap), Ordering::Relaxed);
            self.gap_max_ns
                .fetch_max(as_nanoseconds(gap), Ordering::Relaxed);
        }
    }

    /// Records that a frame waited this long for the reader.
    pub(crate) fn record_stall(&self, time: Duration) {
        self.stalled_ns
            .fetch_add(as_nanoseconds(time), Ordering::Relaxed);
    }
}

impl StreamRecord {
    /// The client has all of `choice` (of every one, if none is named) before token `index`.
    pub fn acknowledge(&self, index: u64, choice: Option<usize>) {
        let Some(started) = self.started() else {
            return;
        };
        let top_n = self.meta().top_n as u64;
        for (i, log) in started.choices.iter().enumerate() {
            if choice.is_none_or(|choice| choice == i) {
                log.tokens.accept(index);
                if let Some(top) = &log.top {
                    top.accept(index.saturating_mul(top_n));
                }
            }
        }
    }

    /// The client has disconnected: grants the detached credit, once.
    pub(crate) fn detach_client(&self) {
        let extra = self.terms().detached_tokens;
        let Some(started) = self.started().filter(|_| extra > 0) else {
            return;
        };
        for log in &started.choices {
            if log.tokens.granted() == 0 {
                log.tokens.grant(extra);
            }
        }
    }

    /// Whether the stream waits for credit that no subscriber returns.
    pub fn is_stranded(&self) -> bool {
        !self.credit_owner.is_taken() && self.is_out_of_credit()
    }

    /// While the stream waits for an attached reader: tokens that the reader has taken. An unchanged number means
    /// that the reader takes nothing.
    pub fn tokens_awaited(&self) -> Option<u64> {
        let taken = |log: &ChoiceLog| log.tokens.len().saturating_sub(log.tokens.unaccepted());
        let waits = self.credit_owner.is_taken() && !self.is_over() && self.is_out_of_credit();
        let started = self.started().filter(|_| waits)?;
        Some(started.choices.iter().map(taken).sum())
    }

    pub(crate) fn is_out_of_credit(&self) -> bool {
        let window = self.terms().credit_window;
        let out_of_credit = |log: &ChoiceLog| {
            log.tokens.end().is_some() || (window > 0 && log.tokens.unaccepted() >= window)
        };
        let started = self.started();
        !self.paused.load(Ordering::Relaxed)
            && started.is_some_and(|started| started.choices.iter().all(out_of_credit))
    }
}

pub(super) fn as_nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
