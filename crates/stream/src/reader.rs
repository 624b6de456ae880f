//! Readers of a log.

use crate::End;
use crate::attach_error::AttachError;
use crate::log::Log;
use crate::sync::{Arc, thread};
use crate::tap::Tap;
use crate::unpark;
use crate::wait::Seat;
use std::task::{Context, Poll};

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Number of items copied into the buffer (never 0).
    Items(usize),
    /// No new items, and the log is open.
    Empty,
    /// All items were read, and the log has ended.
    Ended(End),
}

/// A reader of a log. The drop of the last reader makes the log abandoned.
pub struct Reader<T> {
    seat: Seat, // before `log`: the list of seats is the log's
    log: Arc<Log<T>>,
    cursor: u64, // 0 ..= visible length
}

impl<T: Copy + Send + Sync + 'static> Reader<T> {
    pub(crate) fn start(log: &Arc<Log<T>>, cursor: u64) -> Self {
        log.reader_came();
        Self {
            seat: log.visible.waiters.join(),
            log: Arc::clone(log),
            cursor,
        }
    }

    /// Copies new items into `buf`, as many as fit, without waiting.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn read(&mut self, buf: &mut [T]) -> Read {
        assert!(!buf.is_empty(), "a read needs room for one item");
        let mut count = self.log.copy_visible(self.cursor, buf);
        if count == 0 {
            let Some(end) = self.log.visible_end() else {
                return Read::Empty;
            };
            count = self.log.copy_visible(self.cursor, buf); // what came between the two looks
            if count == 0 {
                return Read::Ended(end);
            }
        }
        self.cursor += count as u64;
        Read::Items(count)
    }

    /// As [`Reader::read`], but `Pending` instead of `Empty`, with the waker registered. Never
    /// `Ready(Read::Empty)`.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [T]) -> Poll<Read> {
        let found = self.read(buf);
        if found != Read::Empty {
            return Poll::Ready(found);
        }
        self.log.visible.waiters.register(&self.seat, cx.waker());
        match self.read(buf) {
            Read::Empty => Poll::Pending,
            found => {
                self.seat.unregister();
                Poll::Ready(found)
            }
        }
    }

    /// As [`Reader::read`], but parks the calling thread until there are new items or the end. Never
    /// `Read::Empty`. Allocates a waker if the thread has to wait.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn read_blocking(&mut self, buf: &mut [T]) -> Read {
        let found = self.read(buf);
        if found != Read::Empty {
            return found;
        }
        let waker = unpark::this_thread();
        let mut cx = Context::from_waker(&waker);
        loop {
            match self.poll_read(&mut cx, buf) {
                Poll::Ready(found) => return found,
                Poll::Pending => thread::park(), // may return for no reason: look again
            }
        }
    }

    /// Index of the reader's next item.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Accepts all items before `index` on behalf of the client, which returns credit to the writer. Only
    /// grows; an index beyond the visible items counts as their number.
    pub fn accept(&self, index: u64) {
        self.log.accept(index);
    }

    /// Grants extra credit, as [`Tap::grant`].
    pub fn grant(&self, extra: u64) {
        self.log.grant(extra);
    }

    /// Opens another reader of the log at `index`, which is at most the visible length (else an error).
    pub fn attach(&self, index: u64) -> Result<Reader<T>, AttachError> {
        self.log.check_index(index)?;
        Ok(Self::start(&self.log, index))
    }

    /// A handle to the log that does not count as a reader.
    pub fn tap(&self) -> Tap<T> {
        Tap::new(&self.log)
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.log.reader_left();
    }
}
