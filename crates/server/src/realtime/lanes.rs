//! The streams of one connection, and whose turn it is.

use crate::gateway::streams::StreamRecord;
use crate::stream_body::StreamBody;
use bytes::Bytes;
use http_body::Body;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::StreamId;

/// One stream of the connection.
struct Lane {
    record: Arc<StreamRecord>,
    body: StreamBody,
    /// Messages of it that were made and not yet taken, a line each.
    rest: Bytes,
}

/// The streams of one connection.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// The one whose turn is next.
    next: usize,
}

impl Lanes {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether there is this one.
    pub(super) fn has(&self, id: StreamId) -> bool {
        self.lanes.iter().any(|lane| lane.record.id() == id)
    }

    /// One more.
    pub(super) fn push(&mut self, record: Arc<StreamRecord>, body: StreamBody) {
        self.lanes.push(Lane {
            record,
            body,
            rest: Bytes::new(),
        });
    }

    /// This one is not followed any more. False when it was not before.
    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        let before = self.lanes.len();
        self.lanes.retain(|lane| lane.record.id() != id);
        self.lanes.len() < before
    }

    /// None is.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
    }

    /// The next message, one of each stream in turn. Asking says that those before were taken.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let mut quiet = 0;
        while quiet < self.lanes.len() {
            let at = self.next % self.lanes.len();
            match self.lanes[at].poll_next(cx) {
                Poll::Ready(Some(message)) => {
                    self.next = at + 1;
                    if self.lanes[at].is_over() {
                        // Whoever is told its end may ask for it again at once.
                        self.lanes.remove(at);
                        self.next = at;
                    }
                    return Poll::Ready(message);
                }
                Poll::Ready(None) => {
                    // Who comes after it has its place now.
                    self.lanes.remove(at);
                    self.next = at;
                }
                Poll::Pending => {
                    self.next = at + 1;
                    quiet += 1;
                }
            }
        }
        Poll::Pending
    }
}

impl Lane {
    /// All was told.
    fn is_over(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let message = self.rest.split_to(end);
                let _ = self.rest.split_to(1);
                return Poll::Ready(Some(message));
            }
            // An empty rest would keep the memory that the next frames are to be written into.
            self.rest = Bytes::new();
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.rest = frame.into_data().unwrap_or_default();
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests;
