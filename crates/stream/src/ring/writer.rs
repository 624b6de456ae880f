//! The end that writes.

use super::channel::{Channel, Kind};
use super::{Header, Item};
use crate::sync::{Arc, Ordering, fence, thread};
use crate::unpark;
use std::task::{Context, Poll};

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A lossless ring has no room now.
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

/// The end that writes. Dropping it closes the ring: the reader is told when it has read everything.
pub struct Writer<T: Item> {
    channel: Arc<Channel<T>>,
    /// Number of the next item.
    next: u64,
    /// Its slot.
    slot: usize,
    /// Items consumed, as far as was looked.
    consumed: u64,
    overflowed: bool,
}

impl<T: Item> Writer<T> {
    pub(crate) fn new(channel: Arc<Channel<T>>, first: u64) -> Self {
        Self {
            slot: channel.slot(first),
            next: first,
            consumed: first,
            overflowed: false,
            channel,
        }
    }

    /// Writes one item, publishes it and wakes the reader. Takes no lock, never waits, allocates nothing.
    ///
    /// # Errors
    /// There is no room (never of a drop-oldest ring), or nobody will read it.
    pub fn push(&mut self, item: T) -> Result<(), Refused> {
        self.make_room()?;
        self.write(item);
        self.channel.shared.publish(self.next);
        self.channel.reader.ring();
        Ok(())
    }

    /// Writes as many of these as there is room for, wakes the reader once, and says how many. A lossless
    /// ring publishes them together.
    ///
    /// # Errors
    /// As [`Writer::push`], if not even the first was taken.
    pub fn push_slice(&mut self, items: &[T]) -> Result<usize, Refused> {
        let mut count = 0;
        for &item in items {
            match self.make_room() {
                Ok(()) => self.write(item),
                Err(why) if count == 0 => return Err(why),
                Err(_) => break,
            }
            if self.channel.kind == Kind::DropOldest {
                self.channel.shared.publish(self.next); // one claim ahead of what is published, never more
            }
            count += 1;
        }
        self.channel.shared.publish(self.next);
        self.channel.reader.ring();
        Ok(count)
    }

    /// Ready when [`Writer::push`] would not say [`Refused::Full`]; otherwise leaves the waker, which is woken
    /// when the reader has taken half the ring, or has found it empty, or is gone.
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

    /// Writes one item; parks the calling thread until there is room. Allocates a waker if it has to wait.
    ///
    /// # Errors
    /// [`Refused::Closed`] only.
    pub fn push_blocking(&mut self, item: T) -> Result<(), Refused> {
        if self.make_room() == Err(Refused::Full) {
            let waker = unpark::this_thread();
            let mut cx = Context::from_waker(&waker);
            while self.poll_ready(&mut cx).is_pending() {
                thread::park(); // may return for no reason: look again
            }
        }
        self.push(item)
    }

    /// Number of the next item: of those written so far, where the first had the number 0.
    pub fn written(&self) -> u64 {
        self.next
    }

    /// Items the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.channel.shared.capacity() as usize
    }

    /// Whether the reader was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.channel.shared.is_abandoned()
    }

    /// Items the reader has found overwritten so far.
    pub fn dropped(&self) -> u64 {
        self.channel.dropped.load(Ordering::Relaxed)
    }

    /// The header as a device sees it now.
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
        let drops = self.channel.kind == Kind::DropOldest;
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

    /// Stores the item; it is not published yet.
    #[inline]
    fn write(&mut self, item: T) {
        if self.channel.kind == Kind::DropOldest {
            self.channel.shared.claim(self.next + 1);
            fence(Ordering::Release);
        }
        self.channel.put(self.slot, item);
        self.slot = self.channel.next_slot(self.slot);
        self.next += 1;
    }
}

impl<T: Item> Drop for Writer<T> {
    fn drop(&mut self) {
        self.channel.shared.close();
        self.channel.reader.ring();
    }
}
