//! Slots of a gateway: a choice runs with one.

use engine::SequencePermits;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

/// The slots of one gateway, shared by the permits of its requests.
#[derive(Clone)]
pub(super) struct Slots {
    total: usize,
    used: Arc<AtomicUsize>,
}

impl Slots {
    pub(super) fn new(total: usize) -> Self {
        let used = Arc::default();
        Self { total, used }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The permits of a request. With `is_forced` the first is taken beyond the limit, as by a stream that ran at an
    /// earlier gateway.
    pub(super) fn permits(&self, is_forced: bool) -> Box<dyn SequencePermits> {
        Box::new(SlotPermits {
            slots: self.clone(),
            held: 0,
            is_forced,
        })
    }
}

struct SlotPermits {
    slots: Slots,
    held: usize,
    is_forced: bool,
}

impl SequencePermits for SlotPermits {
    /// The relay looks at all requests every few milliseconds.
    fn wake_by(&mut self, _: Waker) {}

    fn take(&mut self) -> bool {
        let is_forced = std::mem::take(&mut self.is_forced);
        let is_free = is_forced || self.slots.used() < self.slots.total;
        if is_free {
            self.slots.used.fetch_add(1, Ordering::Relaxed);
            self.held += 1;
        }
        is_free
    }

    fn request(&mut self) {}

    fn withdraw(&mut self) {}

    fn give_back(&mut self) {
        self.slots.used.fetch_sub(1, Ordering::Relaxed);
        self.held -= 1;
    }
}

impl Drop for SlotPermits {
    fn drop(&mut self) {
        self.slots.used.fetch_sub(self.held, Ordering::Relaxed);
    }
}
