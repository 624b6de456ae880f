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
//!
//! # Slots
//!
//! A [`Waiter`] is one reader's slot, with room for one waker. The slot's state has two bits. `0`: at rest, no access to the waker. `REGISTERING`: the reader is storing
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

use crate::sync::{Arc, AtomicBool, AtomicU8, OnceLock, Ordering, UnsafeCell, fence, hint, thread};
use std::task::{Wake, Waker};

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

/// Wakes the calling thread from `park`.
pub(crate) fn this_thread() -> Waker {
    Waker::from(std::sync::Arc::new(Unpark(thread::current())))
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}
