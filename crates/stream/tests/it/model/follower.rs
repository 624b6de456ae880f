//! A reader beside the state that a correct log gives the reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use stream::{Read, Reader};

/// A reader, where it ought to be, and how often it was woken and ought to have been.
pub(super) struct Follower {
    pub(super) reader: Reader<u32>,
    pub(super) cursor: usize,
    pub(super) wakes: Arc<Wakes>,
    pub(super) wakes_due: usize,
    sleeping: bool,
}

#[derive(Default)]
pub(super) struct Wakes(pub(super) AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Follower {
    pub(super) fn new(reader: Reader<u32>, cursor: usize) -> Self {
        Self {
            reader,
            cursor,
            wakes: Arc::default(),
            wakes_due: 0,
            sleeping: false,
        }
    }

    pub(super) fn poll(&mut self, buf: &mut [u32]) -> Read {
        let waker = Waker::from(Arc::clone(&self.wakes));
        match self.reader.poll_read(&mut Context::from_waker(&waker), buf) {
            Poll::Ready(found) => {
                assert_ne!(found, Read::Empty, "ready with nothing");
                found
            }
            Poll::Pending => {
                self.sleeping = true;
                Read::Empty
            }
        }
    }

    /// The log has something new: a sleeper is woken, once.
    pub(super) fn news(&mut self) {
        self.wakes_due += usize::from(std::mem::take(&mut self.sleeping));
    }
}
