//! The streams of one WebSocket, polled in turn.

use crate::response::stream_body::StreamBody;
use bytes::Bytes;
use gateway::streams::StreamRecord;
use http_body::Body;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::StreamId;

/// One stream of a WebSocket.
struct MultiplexedStream {
    record: Arc<StreamRecord>,
    body: StreamBody,
    /// Encoded messages that were not sent, one per line.
    rest: Bytes,
}

/// The streams of one WebSocket.
#[derive(Default)]
pub(super) struct MultiplexedStreams {
    streams: Vec<MultiplexedStream>,
    /// Index of the stream that is polled next.
    next: usize,
}

impl MultiplexedStreams {
    /// Number of streams.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether this stream is attached.
    pub(super) fn contains(&self, id: StreamId) -> bool {
        self.streams.iter().any(|stream| stream.record.id() == id)
    }

    /// Attaches a stream.
    pub(super) fn push(&mut self, record: Arc<StreamRecord>, body: StreamBody) {
        self.streams.push(MultiplexedStream {
            record,
            body,
            rest: Bytes::new(),
        });
    }

    /// Detaches a stream; false if the stream was not attached.
    pub(super) fn remove(&mut self, id: StreamId) -> bool {
        let before = self.streams.len();
        self.streams.retain(|stream| stream.record.id() != id);
        self.streams.len() < before
    }

    /// Detaches all streams.
    pub(super) fn clear(&mut self) {
        self.streams.clear();
    }

    /// The next message; streams take turns. A call means that the previous messages were sent.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let mut quiet = 0;
        while quiet < self.streams.len() {
            let at = self.next % self.streams.len();
            match self.streams[at].poll_next(cx) {
                Poll::Ready(Some(message)) => {
                    self.next = at + 1;
                    if self.streams[at].is_over() {
                        // A client that has received the end may attach again at once.
                        self.streams.remove(at);
                        self.next = at;
                    }
                    return Poll::Ready(message);
                }
                Poll::Ready(None) => {
                    // The next stream has moved to this index.
                    self.streams.remove(at);
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

impl MultiplexedStream {
    /// Whether all messages were taken.
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
            // An empty `rest` would keep the memory that the next frames are written into.
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
