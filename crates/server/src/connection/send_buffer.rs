//! How many bytes of an answer the kernel may hold for one connection.
//!
//! A stream has a small send buffer (`send_buffer_bytes`), so that a slow reader is noticed early. Where a segment is as
//! large as that buffer (loopback: 64 KiB), one unacknowledged segment fills the buffer, and a receiver that got less
//! than two segments delays its acknowledgement: 64 KiB per 40 ms. An answer whose length is known has no credit to
//! account for, and is sent with a large buffer (`answer_buffer_bytes`).
//!
//! # States
//!
//! - *Small*. As accepted. Heads, streams, WebSockets, and answers that fit into `send_buffer_bytes`.
//! - *Large*. From the head of an answer that is longer, until the head of the next answer that is not. The bytes the
//!   kernel may hold are reserved meanwhile from [`AnswerBuffers`], which bounds their sum over all connections; where
//!   they cannot be, the connection stays *small*.
//!
//! The state is chosen where an answer's head is known and applied by the next write, both in the one task of the
//! connection. A small buffer takes no byte before the kernel holds less than that, so what is left of a large answer
//! when a pipelined request is answered by a stream does not widen the stream's window.

use crate::config::ServerConfig;
use crate::socket;
use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit of [`AnswerBuffers`].
const PERMIT_BYTES: usize = 1 << 10;
/// The kernel doubles `SO_SNDBUF` for its own books.
const KERNEL_FACTOR: usize = 2;

/// Kernel bytes that large answers of all connections together may have.
pub(crate) struct AnswerBuffers(Arc<Semaphore>);

impl AnswerBuffers {
    /// So many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes_max / PERMIT_BYTES)))
    }

    fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(permits).ok()
    }
}

/// The send buffer of one connection.
pub(super) struct SendBuffer {
    small: usize,
    large: usize,
    /// The state that the next write applies.
    is_large: AtomicBool,
    reserved: Mutex<Option<OwnedSemaphorePermit>>,
}

impl SendBuffer {
    /// As accepted.
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            small: config.send_buffer_bytes,
            large: config.answer_buffer_bytes,
            is_large: AtomicBool::new(false),
            reserved: Mutex::new(None),
        }
    }

    /// Chooses the state for this answer. Its body is handed to the HTTP library in pieces of `piece_bytes`, which the
    /// library copies into a buffer that stays with the connection.
    pub(super) fn fit(
        &self,
        answer: Response<Body>,
        buffers: &AnswerBuffers,
        piece_bytes: usize,
    ) -> Response<Body> {
        let length = answer.body().size_hint().exact();
        let length = length.and_then(|length| usize::try_from(length).ok());
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        // Given back first: the connection's own last answer does not keep it from its next.
        *reserved = None;
        let Some(length) = length.filter(|&length| length > self.small) else {
            self.is_large.store(false, Ordering::Relaxed);
            return answer;
        };
        *reserved = buffers.reserve(length.min(KERNEL_FACTOR * self.large));
        self.is_large.store(reserved.is_some(), Ordering::Relaxed);
        drop(reserved);
        answer.map(|body| {
            Body::new(Pieces {
                body,
                rest: Bytes::new(),
                piece_bytes,
            })
        })
    }

    /// Applies the state, where it is not the one in `is_large`.
    pub(super) fn apply(&self, stream: &TcpStream, is_large: &mut bool) {
        let wanted = self.is_large.load(Ordering::Relaxed);
        if wanted == *is_large {
            return;
        }
        *is_large = wanted;
        let bytes = if wanted { self.large } else { self.small };
        if let Err(error) = socket::set_send_buffer(stream, bytes) {
            // The answer is sent all the same, with the buffer that there is.
            tracing::debug!(%error, "send buffer");
        }
    }
}

/// A body whose frames are at most `piece_bytes` long.
struct Pieces {
    body: Body,
    /// The rest of a frame that is longer than a piece.
    rest: Bytes,
    piece_bytes: usize,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let n = this.rest.len().min(this.piece_bytes);
        let piece = this.rest.split_to(n);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.body.size_hint().exact().unwrap_or_default();
        SizeHint::with_exact(self.rest.len() as u64 + length)
    }
}

#[cfg(test)]
mod tests;
