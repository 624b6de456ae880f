//! Who is to be woken when the log has something new.
//!
//! # The protocol
//!
//! - A reader that found nothing puts its waker into its own slot, sets `armed`, and **looks
//!   again**; only if there is still nothing does it sleep.
//! - The writer publishes (a new length or the end), and then looks at `armed`. If it is set, it
//!   clears it and wakes every slot's waker, taking it out: a sleeping reader is woken once,
//!   however much is appended before it runs. If `armed` is not set, that look is all it costs.
//!
//! # The bad interleavings
//!
//! *The writer publishes after the reader looked and looks at `armed` before the reader set it.*
//! Between its publishing and its look the writer has a sequentially consistent fence, and so has
//! the reader between its setting and its second look. One fence is first. If the reader's, the
//! writer sees `armed` and the waker; if the writer's, the reader sees what was published.
//!
//! *Two readers arm, and the writer, clearing `armed`, sees only the second.* It would then clear
//! the flag on behalf of the first without knowing of its waker. So arming is an exchange, not a
//! store: the second continues the first's release sequence, and who sees the flag set by one sees
//! the wakers of all who had set it before. Who arms after the clearing leaves it set.
//!
//! *The writer meets a reader that is just registering, or one that leaves.* See [`Waiter`].
//!
//! Slots are a chain that only grows, and each is used again by the next reader when its reader has
//! left: as many slots as there were readers at one time (about 64 bytes each), freed with the log.
//! Joining and waking cost time in their number.

use crate::sync::{Arc, AtomicBool, OnceLock, Ordering, fence};
use crate::waiter::Waiter;
use std::task::Waker;

/// The wakers of one log's readers.
pub(crate) struct WaitList {
    /// Whether some reader registered a waker since the last wake.
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

    /// Registers the seat's waker and arms the list. The caller looks again after this.
    pub(crate) fn register(&self, seat: &Seat, waker: &Waker) {
        seat.node.waiter.register(waker);
        self.armed.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Wakes all who sleep. The caller has published before this.
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
    /// Unlinks one node after the other; the chain may be longer than the stack is deep.
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

/// A reader's own slot. Dropping it takes the waker out and frees the slot for another reader.
pub(crate) struct Seat {
    node: Arc<Node>,
}

impl Seat {
    /// Takes the reader's waker out again: it has found something after all.
    pub(crate) fn unregister(&self) {
        drop(self.node.waiter.take());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.node.waiter.release();
    }
}
