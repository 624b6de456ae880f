//! A gate in front of the fake model's forward passes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Lets a test control forward passes: each pass waits for a permit and consumes the permit.
#[derive(Debug, Default)]
pub struct Gate {
    permits: Mutex<u64>,
    waiting: AtomicUsize,
    more: Condvar,
}

impl Gate {
    /// Allows this many more forward passes.
    pub fn allow(&self, passes: u64) {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        *permits = permits.saturating_add(passes);
        self.more.notify_all();
    }

    /// Allows a forward pass only if one waits for a permit.
    pub fn allow_waiting(&self) {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if *permits == 0 && self.is_waited_at() {
            *permits = 1;
            self.more.notify_all();
        }
    }

    /// Allows all forward passes from now on.
    pub fn open(&self) {
        self.allow(u64::MAX);
    }

    /// Whether a forward pass waits for a permit.
    pub fn is_waited_at(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    pub(super) fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.wait();
    }

    fn wait(&self) {
        let permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut permits = self
            .more
            .wait_while(permits, |permits| *permits == 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *permits != u64::MAX {
            *permits -= 1;
        }
        // Under the lock: what has its permit waits no longer.
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
