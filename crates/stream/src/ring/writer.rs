//! Writers of rings.

use super::channel::{Channel, RingKind};
use super::{Header, Item};
use crate::sync::{Arc, Ordering, fence, thread};
use crate::wait;
use std::task::{Context, Poll};

/// Why an item was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The lossless ring is full.
    Full,
    /// The reader is gone.
    Closed,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "the ring is full",
            Self::Closed => "the ring's reader is gone",
        })
    }
}

impl std::error::Error for Refused {}

/// The writing end of a ring. The drop closes the ring; the reader sees that after the last item.
pub struct RingWriter<T: Item> {
    channel: Arc<Channel<T>>,
    /// Number of the next item.
    next: u64,
    /// Slot of the next item.
    slot: usize,
    /// Last loaded number of items consumed.
    consumed: u64,
    overflowed: bool,
}

impl<T: Item> RingWriter<T> {
    pub(crate) fn new(channel: Arc<Channel<T>>, first: u64) -> Self {
        Self {
            slot: channel.slot(first),
            next: first,
            consumed: first,
            overflowed: false,
            channel,
        }
    }

    /// Writes one item, publishes the item and wakes the reader. Takes no lock, never waits, allocates nothing.
    ///
    /// # Errors
    /// The ring is full (never in a drop-oldest ring), or the reader is gone.
    pub fn push(&mut self, item: T) -> Result<(), Refused> {
        self.make_room()?;
        self.write(item);
        self.channel.shared.publish(self.next);
        self.channel.reader.ring();
        Ok(())
    }

    /// Writes as many items as fit, wakes the reader once, and returns their number. A lossless ring publishes
    /// them together.
    ///
    /// # Errors
    /// As [`RingWriter::push`], if not even the first item was accepted.
    pub fn push_slice(&mut self, items: &[T]) -> Result<usize, Refused> {
        let mut count = 0;
        for &item in items {
            match self.make_room() {
                Ok(()) => self.write(item),
                Err(why) if count == 0 => return Err(why),
                Err(_) => break,
            }
            if self.channel.kind == RingKind::DropOldest {
                self.channel.shared.publish(self.next); // one claim ahead of what is published, never more
            }
            count += 1;
        }
        self.channel.shared.publish(self.next);
        self.channel.reader.ring();
        Ok(count)
    }

    /// Ready when [`RingWriter::push`] would not return [`Refused::Full`]; otherwise stores the waker, which is
    /// woken when the reader has consumed half the ring, has found the ring empty, or is gone.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.make_room() != Err(Refused::Full) {
            return Poll::Ready(());
        }
        self.channel.writer.arm(cx.waker());
        if self.make_room() == Err(Refused::Full) {
            return Poll::Pending;
        }
        self.channel.writer.disarm();
        Poll::Ready(())
    }

    /// Writes one item; parks the calling thread while the ring is full. Allocates a waker if the thread has to
    /// wait.
    ///
    /// # Errors
    /// [`Refused::Closed`] only.
    pub fn push_blocking(&mut self, item: T) -> Result<(), Refused> {
        if self.make_room() == Err(Refused::Full) {
            let waker = wait::this_thread();
            let mut cx = Context::from_waker(&waker);
            while self.poll_ready(&mut cx).is_pending() {
                thread::park(); // may return for no reason: look again
            }
        }
        self.push(item)
    }

    /// Number of the next item; equal to the items written, if the first had the number 0.
    pub fn written(&self) -> u64 {
        self.next
    }

    /// Capacity in items.
    pub fn capacity(&self) -> usize {
        self.channel.shared.capacity() as usize
    }

    /// Whether the reader was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.channel.shared.is_abandoned()
    }

    /// Items that were overwritten before the reader came to them.
    pub fn dropped(&self) -> u64 {
        self.channel.dropped.load(Ordering::Relaxed)
    }

    /// Snapshot of the header.
    pub fn header(&self) -> Header {
        self.channel.shared.view()
    }

    #[inline]
    fn make_room(&mut self) -> Result<(), Refused> {
        let shared = &self.channel.shared;
        if shared.is_abandoned() {
            return Err(Refused::Closed);
        }
        let capacity = shared.capacity();
        let drops = self.channel.kind == RingKind::DropOldest;
        if self.next - self.consumed < capacity || (drops && self.overflowed) {
            return Ok(());
        }
        self.consumed = shared.consumed();
        if self.next - self.consumed < capacity {
            return Ok(());
        }
        if !self.overflowed {
            self.overflowed = true;
            shared.overflow();
        }
        if drops { Ok(()) } else { Err(Refused::Full) }
    }

    /// Stores the item without publishing it.
    #[inline]
    fn write(&mut self, item: T) {
        if self.channel.kind == RingKind::DropOldest {
            self.channel.shared.claim(self.next + 1);
            fence(Ordering::Release);
        }
        self.channel.put(self.slot, item);
        self.slot = self.channel.next_slot(self.slot);
        self.next += 1;
    }
}

impl<T: Item> Drop for RingWriter<T> {
    fn drop(&mut self) {
        self.channel.shared.close();
        self.channel.reader.ring();
    }
}
