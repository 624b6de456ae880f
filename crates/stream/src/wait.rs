//! Wake-ups of readers that wait for new items.
//!
//! # Protocol
//!
//! - A reader that found nothing stores a waker in the reader's own slot, sets `armed`, and **checks again**; the
//!   reader sleeps only if there is still nothing.
//! - The writer publishes (a new length or the end), and then loads `armed`. If set, the writer clears `armed` and takes
//!   and wakes the wakers of all slots: a sleeping reader is woken once, however many items are appended before the reader
//!   runs. If `armed` is not set, the load is the only cost.
//!
//! # Bad interleavings
//!
//! *The writer publishes after the reader's check and loads `armed` before the reader sets the flag.* The
//! writer has a sequentially consistent fence between publishing and loading, the reader has one between
//! setting and the second check. One fence is first. If the reader's fence is first, the writer sees `armed`
//! and the waker; if the writer's is first, the reader sees the published item.
//!
//! *Two readers arm, and the writer, clearing `armed`, sees only the second.* The writer would clear the flag
//! on behalf of the first reader without seeing that reader's waker. So arming is an exchange, not a store:
//! the second exchange continues the first's release sequence, and a thread that sees the flag set by one
//! reader sees the wakers of all readers that had set it before. A reader that arms after the clearing leaves
//! the flag set.
//!
//! *The writer meets a reader that is registering or leaving.* See [`Waiter`].
//!
//! Slots are a chain that only grows; a slot is reused by another reader after the first has left. There are
//! as many slots as there were readers at one time (about 64 bytes each), freed with the log. Joining and
//! waking take time in proportion to the slots.

use crate::sync::{Arc, AtomicBool, OnceLock, Ordering, fence};
use crate::waiter::Waiter;
use std::task::Waker;

/// Wakers of one log's readers.
pub(crate) struct WaitList {
    /// Whether a reader registered a waker since the last wake.
    armed: AtomicBool,
    first: Link,
}

type Link = OnceLock<Arc<Node>>;

struct Node {
    waiter: Waiter,
    next: Link,
}

impl WaitList {
    pub(crate) fn new() -> Self {
        Self {
            armed: AtomicBool::new(false),
            first: Link::new(),
        }
    }

    /// A slot for one more reader.
    pub(crate) fn join(&self) -> Seat {
        let mut link = &self.first;
        let mut fresh = None;
        loop {
            while let Some(node) = link.get() {
                if node.waiter.claim() {
                    return Seat {
                        node: Arc::clone(node),
                    };
                }
                link = &node.next;
            }
            let node = fresh.take().unwrap_or_else(Node::claimed);
            match link.set(Arc::clone(&node)) {
                Ok(()) => return Seat { node },
                Err(_) => fresh = Some(node), // another reader came first: go on behind it
            }
        }
    }

    /// Registers the seat's waker and arms the list. The caller checks for new items afterwards.
    pub(crate) fn register(&self, seat: &Seat, waker: &Waker) {
        seat.node.waiter.register(waker);
        self.armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Wakes all sleeping readers. The caller has published before.
    #[inline]
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) {
            self.wake_registered();
        }
    }

    #[cold]
    fn wake_registered(&self) {
        self.armed.swap(false, Ordering::AcqRel);
        let mut link = &self.first;
        while let Some(node) = link.get() {
            if let Some(waker) = node.waiter.take() {
                waker.wake();
            }
            link = &node.next;
        }
    }
}

impl Drop for WaitList {
    /// Unlinks the nodes one by one: recursion could overflow the stack.
    fn drop(&mut self) {
        let mut link = self.first.take();
        while let Some(node) = link {
            link = Arc::try_unwrap(node)
                .ok()
                .and_then(|mut node| node.next.take());
        }
    }
}

impl Node {
    fn claimed() -> Arc<Self> {
        Arc::new(Self {
            waiter: Waiter::claimed(),
            next: Link::new(),
        })
    }
}

/// A reader's slot. The drop removes the waker and frees the slot for another reader.
pub(crate) struct Seat {
    node: Arc<Node>,
}

impl Seat {
    /// Removes the waker of a reader that found an item after all.
    pub(crate) fn unregister(&self) {
        drop(self.node.waiter.take());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.node.waiter.release();
    }
}
