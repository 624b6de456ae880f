//! A waker that wakes a parked thread.

use crate::sync::thread;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Wakes the calling thread from `park`.
pub(crate) fn this_thread() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
