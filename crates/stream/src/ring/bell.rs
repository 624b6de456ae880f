//! Wakes a side that sleeps at one end of a ring.
//!
//! The sleeper stores a waker, sets `armed`, executes a sequentially consistent fence, and checks again; only
//! then does the sleeper sleep. The other side publishes, executes such a fence, too, and loads `armed`. One of
//! the two fences is first: if the sleeper's, the other side sees `armed` and the waker; if the other side's,
//! the sleeper sees what was published.

use crate::sync::{AtomicBool, Ordering, fence};
use crate::waiter::Waiter;
use std::task::Waker;

/// Waker of one side.
pub(crate) struct Bell {
    /// Whether a waker was stored since the last wake-up.
    armed: AtomicBool,
    waiter: Waiter,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            armed: AtomicBool::new(false),
            waiter: Waiter::claimed(),
        }
    }

    /// Called by the sleeper, which checks again afterwards.
    pub(crate) fn arm(&self, waker: &Waker) {
        self.waiter.register(waker);
        self.armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Called by a sleeper that has something to do after all.
    pub(crate) fn disarm(&self) {
        drop(self.waiter.take());
    }

    /// Called by the other side after publishing. If no side sleeps, the cost is a fence and a load.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.armed.swap(false, Ordering::AcqRel);
        if let Some(waker) = self.waiter.take() {
            waker.wake();
        }
    }
}
