//! One reader's slot in the wait list: room for one waker.
//!
//! # States and protocol
//!
//! The slot's state has two bits. `0`: at rest, no access to the waker. `REGISTERING`: the reader is storing
//! a waker. `TAKING`: a thread is taking the waker.
//!
//! - The reader (one at a time) changes `0 -> REGISTERING`, stores the waker, and changes back to `0`.
//! - A taker sets `TAKING`. If the state was `0`, the taker has exclusive access, takes the waker and clears the bit.
//!   Otherwise the taker leaves without waiting.
//!
//! Bad interleaving: the taker comes while the reader is registering and leaves, and the reader sleeps although
//! the taker had published news. That cannot happen, because the reader's change back to `0` acquires what the
//! taker published before setting the bit, and the reader checks once more after registering: the reader finds
//! the news then, or had read them before. The opposite: the reader comes while a taker has access, and cannot
//! register. The reader does not wait: the reader's task is woken at once and registers when polled again.

use crate::sync::{AtomicBool, AtomicU8, Ordering, UnsafeCell, hint};
use std::task::Waker;

const REST: u8 = 0;
const REGISTERING: u8 = 1;
const TAKING: u8 = 2;

/// A slot for one reader's waker.
pub(crate) struct Waiter {
    /// Whether a reader owns this slot.
    claimed: AtomicBool,
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: only the thread that moved `state` away from `REST` accesses `waker`, and that exchange and the one
// back order the accesses (see the module docs). `Waker` is `Send`.
#[expect(unsafe_code, reason = "the cell is guarded by `state`")]
unsafe impl Sync for Waiter {}

impl Waiter {
    pub(crate) fn claimed() -> Self {
        Self {
            claimed: AtomicBool::new(true),
            state: AtomicU8::new(REST),
            waker: UnsafeCell::new(None),
        }
    }

    /// Claims a free slot for the caller; false if another reader owns the slot.
    pub(crate) fn claim(&self) -> bool {
        self.claimed
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Frees the slot for another reader.
    pub(crate) fn release(&self) {
        drop(self.take());
        self.claimed.store(false, Ordering::Release);
    }

    /// Replaces the stored waker. Called by the slot's reader only, which checks for news afterwards.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut waker = Some(waker.clone()); // foreign code, so not while the slot is held
        let entered =
            self.state
                .compare_exchange(REST, REGISTERING, Ordering::Acquire, Ordering::Acquire);
        if entered.is_ok() {
            self.swap(&mut waker);
            self.state.swap(REST, Ordering::AcqRel);
        } else if let Some(waker) = waker {
            hint::spin_loop(); // the taker is a few instructions from leaving
            waker.wake(); // last: a thread that yields in loom forgets an earlier wake
        }
    }

    /// Takes the waker, if there is one and no other thread has access.
    pub(crate) fn take(&self) -> Option<Waker> {
        if self.state.fetch_or(TAKING, Ordering::AcqRel) != REST {
            return None;
        }
        let mut waker = None;
        self.swap(&mut waker);
        self.state.fetch_and(!TAKING, Ordering::Release);
        waker
    }

    /// Called only by the thread that moved `state` away from `REST`.
    #[expect(unsafe_code, reason = "the cell is guarded by `state`")]
    fn swap(&self, other: &mut Option<Waker>) {
        // SAFETY: the caller moved `state` away from `REST`, so no other thread accesses the cell; `other` does
        // not alias it.
        self.waker
            .with_mut(|own| unsafe { std::ptr::swap(own, other) });
    }
}
