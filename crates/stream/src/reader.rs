//! One who follows the log.

use crate::End;
use crate::log::{AttachError, Log};
use crate::sync::{Arc, thread};
use crate::tap::Tap;
use crate::unpark;
use crate::wait::Seat;
use std::task::{Context, Poll};

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// This many items were copied into the buffer (never 0).
    Items(usize),
    /// Nothing new, and the log is still open.
    Empty,
    /// All items were read, and the log has ended.
    Ended(End),
}

/// One who follows the log. Dropping the last reader makes the log abandoned.
pub struct Reader<T> {
    seat: Seat, // before `log`: the list of seats is the log's
    log: Arc<Log<T>>,
    cursor: u64, // 0 ..= len
}

impl<T: Copy + Send + Sync + 'static> Reader<T> {
    pub(crate) fn start(log: &Arc<Log<T>>, cursor: u64) -> Self {
        log.reader_came();
        Self {
            seat: log.waiters.join(),
            log: Arc::clone(log),
            cursor,
        }
    }

    /// Copies what is new into `buf` (as much as fits), without waiting.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn read(&mut self, buf: &mut [T]) -> Read {
        assert!(!buf.is_empty(), "a read needs room for one item");
        let mut count = self.log.copy_from(self.cursor, buf);
        if count == 0 {
            let Some(end) = self.log.end() else {
                return Read::Empty;
            };
            count = self.log.copy_from(self.cursor, buf); // what came between the two looks
            if count == 0 {
                return Read::Ended(end);
            }
        }
        self.cursor += count as u64;
        Read::Items(count)
    }

    /// The same; `Pending` (instead of `Empty`) leaves the waker registered. Never `Ready(Read::Empty)`.
    ///
    /// # Panics
    /// If `buf` is empty.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [T]) -> Poll<Read> {
        let found = self.read(buf);
        if found != Read::Empty {
            return Poll::Ready(found);
        }
        self.log.waiters.register(&self.seat, cx.waker());
        match self.read(buf) {
            Read::Empty => Poll::Pending,
            found => {
                self.seat.unregister();
                Poll::Ready(found)
            }
        }
    }

    /// The same; parks the calling thread until there is something. Never `Read::Empty`.
    /// Allocates a waker if it has to wait.
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

    /// Index of the next item this reader will see.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Tells the writer that all items before `index` have left for the client: returns credit.
    /// Only grows; what is beyond the items written counts as their number.
    pub fn accept(&self, index: u64) {
        self.log.accept(index);
    }

    /// Extra credit, as [`Tap::grant`] gives it.
    pub fn grant(&self, extra: u64) {
        self.log.grant(extra);
    }

    /// Another reader of the same log, from `index` (at most the length; else an error).
    pub fn attach(&self, index: u64) -> Result<Reader<T>, AttachError> {
        self.log.check_index(index)?;
        Ok(Self::start(&self.log, index))
    }

    /// A look at the log that does not count as a reader.
    pub fn tap(&self) -> Tap<T> {
        Tap::new(&self.log)
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.log.reader_left();
    }
}
