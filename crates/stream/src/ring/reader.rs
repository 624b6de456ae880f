//! Readers of rings.

use super::channel::{Channel, RingKind};
use super::{Header, Item};
use crate::sync::{Arc, Ordering, fence, thread};
use crate::wait;
use std::task::{Context, Poll};

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// The next item.
    Item(T),
    /// No item now; the ring is open.
    Empty,
    /// All items were read, and the ring is closed.
    Closed,
}

/// The reading end of a ring. The drop tells the writer that the reader is gone.
///
/// As an [`Iterator`] the reader returns available items and does not wait: more items may follow a `None`.
pub struct RingReader<T: Item> {
    channel: Arc<Channel<T>>,
    /// Number of the next item.
    cursor: u64,
    /// Slot of the next item; lossless only.
    slot: usize,
    /// Last loaded number of items written; lossless only.
    written: u64,
    /// Cursor at the last wake-up of the writer.
    rung: u64,
}

impl<T: Item> RingReader<T> {
    pub(crate) fn new(channel: Arc<Channel<T>>, first: u64) -> Self {
        Self {
            slot: channel.slot(first),
            cursor: first,
            written: first,
            rung: first,
            channel,
        }
    }

    /// The next item, if available. [`RingReader::next_item`] distinguishes empty from closed.
    pub fn try_next(&mut self) -> Option<T> {
        let Some(item) = self.copy_next() else {
            self.tell_room(1);
            return None;
        };
        self.publish();
        Some(item)
    }

    /// The next item, or the reason why there is none. Never waits.
    pub fn next_item(&mut self) -> Next<T> {
        if let Some(item) = self.try_next() {
            return Next::Item(item);
        }
        if !self.channel.shared.is_closed() {
            return Next::Empty;
        }
        // An item may have come between the two loads.
        self.try_next().map_or(Next::Closed, Next::Item)
    }

    /// Appends all available items, up to the ring's capacity, and returns their number. Allocates only to grow
    /// `items`.
    pub fn drain_into(&mut self, items: &mut Vec<T>) -> usize {
        let (before, most) = (items.len(), self.capacity());
        while items.len() - before < most
            && let Some(item) = self.copy_next()
        {
            items.push(item);
        }
        let count = items.len() - before;
        if count > 0 {
            self.publish();
        }
        count
    }

    /// Ready with an item, or with `None` when the ring is closed and read; otherwise stores the waker.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.next_item() {
            Next::Item(item) => return Poll::Ready(Some(item)),
            Next::Closed => return Poll::Ready(None),
            Next::Empty => self.channel.reader.arm(cx.waker()),
        }
        let found = match self.next_item() {
            Next::Item(item) => Some(item),
            Next::Closed => None,
            Next::Empty => return Poll::Pending,
        };
        self.channel.reader.disarm();
        Poll::Ready(found)
    }

    /// The next item, or `None` when the ring is closed and read; parks the calling thread while there is none.
    /// Allocates a waker if the thread has to wait.
    pub fn next_blocking(&mut self) -> Option<T> {
        match self.next_item() {
            Next::Item(item) => return Some(item),
            Next::Closed => return None,
            Next::Empty => {}
        }
        let waker = wait::this_thread();
        let mut cx = Context::from_waker(&waker);
        loop {
            match self.poll_next(&mut cx) {
                Poll::Ready(found) => return found,
                Poll::Pending => thread::park(), // may return for no reason: look again
            }
        }
    }

    /// Number of the next item; in a drop-oldest ring, unless that item is overwritten first.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Items that were overwritten before this reader came to them.
    pub fn dropped(&self) -> u64 {
        self.channel.dropped.load(Ordering::Relaxed)
    }

    /// Capacity in items.
    pub fn capacity(&self) -> usize {
        self.channel.shared.capacity() as usize
    }

    /// Whether the writer has closed the ring; items may be left to read.
    pub fn is_closed(&self) -> bool {
        self.channel.shared.is_closed()
    }

    /// Snapshot of the header.
    pub fn header(&self) -> Header {
        self.channel.shared.view()
    }

    /// Publishes the number of consumed items, so that the writer may continue.
    #[inline]
    fn publish(&mut self) {
        self.channel.shared.consume(self.cursor);
        self.tell_room((self.channel.shared.capacity() / 2).max(1));
    }

    /// Wakes the writer, if enough items were consumed since the last wake-up.
    #[inline]
    fn tell_room(&mut self, taken: u64) {
        if self.channel.kind == RingKind::Lossless && self.cursor - self.rung >= taken {
            self.rung = self.cursor;
            self.channel.writer.ring();
        }
    }

    #[inline]
    fn copy_next(&mut self) -> Option<T> {
        match self.channel.kind {
            RingKind::Lossless => self.copy_in_order(),
            RingKind::DropOldest => self.copy_oldest(),
        }
    }

    #[inline]
    fn copy_in_order(&mut self) -> Option<T> {
        if self.cursor == self.written {
            self.written = self.channel.shared.written();
            if self.cursor == self.written {
                return None;
            }
        }
        let item = self.channel.get(self.slot);
        self.slot = self.channel.next_slot(self.slot);
        self.cursor += 1;
        Some(item)
    }

    /// Each iteration but the last means that the writer advanced by a whole ring.
    fn copy_oldest(&mut self) -> Option<T> {
        loop {
            let written = self.channel.shared.written();
            self.skip_to(written);
            if self.cursor == written {
                return None;
            }
            let item = self.channel.get(self.channel.slot(self.cursor));
            fence(Ordering::Acquire);
            let claimed = self.channel.shared.claimed();
            if claimed - self.cursor <= self.channel.shared.capacity() {
                self.cursor += 1;
                return Some(item);
            }
            self.skip_to(claimed);
        }
    }

    /// Skips overwritten items when the ring ends before the item with this number.
    fn skip_to(&mut self, end: u64) {
        let oldest = end.saturating_sub(self.channel.shared.capacity());
        if oldest > self.cursor {
            let dropped = oldest - self.cursor;
            self.channel.dropped.fetch_add(dropped, Ordering::Relaxed);
            self.cursor = oldest;
        }
    }
}

impl<T: Item> Iterator for RingReader<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.try_next()
    }
}

#[cfg(feature = "futures-core")]
impl<T: Item> futures_core::Stream for RingReader<T> {
    type Item = T;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        RingReader::poll_next(self.get_mut(), cx)
    }
}

impl<T: Item> Drop for RingReader<T> {
    fn drop(&mut self) {
        self.channel.shared.abandon();
        self.channel.writer.ring();
    }
}
