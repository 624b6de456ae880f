//! One reader's place in the list of those to be woken: a slot for one waker.
//!
//! # States and protocol
//!
//! The slot's state is two bits. `0`: at rest, nobody touches the waker. `REGISTERING`: the reader
//! is putting its waker in. `TAKING`: somebody is taking the waker out.
//!
//! - The reader (one at a time) goes `0 -> REGISTERING`, puts the waker, and goes back to `0`.
//! - A taker sets `TAKING`. If the state was `0` it has the slot to itself, takes the waker and
//!   clears the bit. Otherwise it walks away: it never waits.
//!
//! The bad interleaving: the taker comes while the reader is registering, walks away, and the
//! reader sleeps over what the taker wanted to wake it for. It cannot happen, because the reader's
//! way back to `0` acquires what the taker published before it set the bit, and the reader looks
//! once more after registering: either it finds it then, or it had read it already.
//! The other one: the reader comes while a taker has the slot, and cannot register. It does not
//! wait; it wakes itself at once and will register when polled again.

use crate::sync::{AtomicBool, AtomicU8, Ordering, UnsafeCell, hint};
use std::task::Waker;

const REST: u8 = 0;
const REGISTERING: u8 = 1;
const TAKING: u8 = 2;

/// A slot for one reader's waker.
pub(crate) struct Waiter {
    /// Whether some reader has this slot.
    claimed: AtomicBool,
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
}

// SAFETY: `waker` is touched only by the one who moved `state` away from `REST`, and that exchange
// and the one back order the accesses (see the module docs). `Waker` is `Send`.
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

    /// Makes a slot nobody has the caller's own. False when somebody has it.
    pub(crate) fn claim(&self) -> bool {
        self.claimed
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// The reader leaves; the slot may be claimed by another.
    pub(crate) fn release(&self) {
        drop(self.take());
        self.claimed.store(false, Ordering::Release);
    }

    /// Puts `waker` in, in place of what was there. To be called by the slot's reader only, which
    /// looks again afterwards.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut waker = Some(waker.clone()); // foreign code, so not while the slot is held
        let entered =
            self.state
                .compare_exchange(REST, REGISTERING, Ordering::Acquire, Ordering::Acquire);
        if entered.is_ok() {
            self.swap(&mut waker);
            self.state.swap(REST, Ordering::AcqRel);
        } else if let Some(waker) = waker {
            waker.wake();
            hint::spin_loop(); // the taker is a few instructions from leaving
        }
    }

    /// Takes the waker out, if there is one and nobody else is at it.
    pub(crate) fn take(&self) -> Option<Waker> {
        if self.state.fetch_or(TAKING, Ordering::AcqRel) != REST {
            return None;
        }
        let mut waker = None;
        self.swap(&mut waker);
        self.state.fetch_and(!TAKING, Ordering::Release);
        waker
    }

    /// Only for the one who moved `state` away from `REST`.
    #[expect(unsafe_code, reason = "the cell is guarded by `state`")]
    fn swap(&self, other: &mut Option<Waker>) {
        // SAFETY: the caller moved `state` away from `REST`, so nobody else touches the cell, and
        // `other` does not point into it.
        self.waker
            .with_mut(|own| unsafe { std::ptr::swap(own, other) });
    }
}
