//! A waker for threads that poll and park.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

/// Unparks a thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks the current thread.
pub(crate) fn current() -> Waker {
    Waker::from(Arc::new(ThreadWaker(thread::current())))
}
