//! The kernel's send buffer of one connection.
//!
//! A stream has a small send buffer (`send_buffer_bytes`), so that a slow reader is noticed early. Where one TCP
//! segment is as large as that buffer (loopback: 64 KiB), one unacknowledged segment fills the buffer, and a receiver
//! that got less than two segments delays the acknowledgement: 64 KiB per 40 ms. A response of known length has no
//! credit to account for, and is sent with a large buffer (`answer_buffer_bytes`).
//!
//! # States
//!
//! - *Small*. The state of an accepted connection. For response heads, streams, WebSockets, and responses that fit
//!   into `send_buffer_bytes`.
//! - *Large*. From the head of a longer response until the head of the next response that is not longer. The bytes
//!   that the kernel may hold are reserved meanwhile from [`AnswerBuffers`], which bounds their sum over all
//!   connections; without a reservation the connection stays *small*.
//!
//! The state is chosen when the response head is known and applied by the next write, both in the one task of the
//! connection. A small buffer accepts no byte while the kernel holds more than `send_buffer_bytes`. Therefore unsent
//! bytes of a large response do not widen the window of a stream that answers a pipelined request.

use crate::config::server_config::ServerConfig;
use crate::connection::client_socket::ClientSocket;
use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit of [`AnswerBuffers`].
const PERMIT_BYTES: usize = 1 << 10;
/// The kernel doubles `SO_SNDBUF` to account for overhead.
const KERNEL_FACTOR: usize = 2;

/// Budget of kernel memory for large responses, shared by all connections.
pub(crate) struct AnswerBuffers(Arc<Semaphore>);

impl AnswerBuffers {
    /// A budget of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes_max / PERMIT_BYTES)))
    }

    fn reserve_bytes(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
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
    /// The small buffer of an accepted connection.
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            small: config.send_buffer_bytes,
            large: config.answer_buffer_bytes,
            is_large: AtomicBool::new(false),
            reserved: Mutex::new(None),
        }
    }

    /// Chooses the state for this response. The HTTP library gets the body in pieces of `piece_bytes`, because the
    /// library copies each piece into a buffer that stays with the connection.
    pub(super) fn prepare_response(
        &self,
        response: Response<Body>,
        buffers: &AnswerBuffers,
        piece_bytes: usize,
    ) -> Response<Body> {
        let length = response.body().size_hint().exact();
        let length = length.and_then(|length| usize::try_from(length).ok());
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        // Released first, so that the connection's previous response does not prevent a reservation for the next one.
        *reserved = None;
        let Some(length) = length.filter(|&length| length > self.small) else {
            self.is_large.store(false, Ordering::Relaxed);
            return response;
        };
        *reserved = buffers.reserve_bytes(length.min(KERNEL_FACTOR * self.large));
        self.is_large.store(reserved.is_some(), Ordering::Relaxed);
        drop(reserved);
        response.map(|body| {
            Body::new(Pieces {
                body,
                rest: Bytes::new(),
                piece_bytes,
            })
        })
    }

    /// Applies the chosen state, if `is_large` differs.
    pub(super) fn apply_size(&self, socket: &ClientSocket, is_large: &mut bool) {
        let large = self.is_large.load(Ordering::Relaxed);
        if large == *is_large {
            return;
        }
        *is_large = large;
        let bytes = if large { self.large } else { self.small };
        if let Err(error) = socket.set_send_buffer(bytes) {
            // The response is sent with the present buffer.
            tracing::debug!(%error, "cannot set the send buffer size");
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
