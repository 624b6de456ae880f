//! Wakes the one who sleeps at a ring's end.
//!
//! The sleeper puts its waker in, sets `armed`, has a sequentially consistent fence, and looks again; only then
//! does it sleep. The other side publishes, has such a fence too, and looks at `armed`. One fence is first: if
//! the sleeper's, the other side sees `armed` and the waker; if the other's, the sleeper sees what was published.

use crate::sync::{AtomicBool, Ordering, fence};
use crate::waiter::Waiter;
use std::task::Waker;

/// One sleeper's bell.
pub(crate) struct Bell {
    /// Whether a waker was put in since the last ring.
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

    /// The sleeper's: it looks again after this.
    pub(crate) fn arm(&self, waker: &Waker) {
        self.waiter.register(waker);
        self.armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// The sleeper's: it found something after all.
    pub(crate) fn disarm(&self) {
        drop(self.waiter.take());
    }

    /// The other side's, after it published. Where nobody sleeps it costs a fence and a load.
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
