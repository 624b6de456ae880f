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
//!
//! A streamed response as chunks on a socket (RFC 9112, section 7.1).
//!
//! One frame is written at a time: the next frame is encoded after the kernel took the previous one, so that
//! backpressure of a slow reader is noticed early. Chunk length, frame and chunk end are written from where they are,
//! without a copy.

use super::client_socket::BufferedStream;
use crate::config::server_config::ServerConfig;
use crate::connection::client_socket::ClientSocket;
use crate::response::stream_body::StreamBody;
use axum::body::Body;
use axum::http::Response;
use bytes::{Buf, Bytes};
use gateway::streams::EndReceipt;
use http_body::{Body as _, Frame, SizeHint};
use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
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

/// Bytes of the next request that are read while a response is sent; the rest stays in the kernel.
const AHEAD_BYTES_MAX: usize = 256;
/// Bytes of the longest chunk length: 16 hexadecimal digits, CR and LF.
const LENGTH_BYTES_MAX: usize = 18;
const END: &[u8] = b"\r\n";
const LAST_END: &[u8] = b"\r\n0\r\n\r\n";
const LAST: &[u8] = b"0\r\n\r\n";

/// Sends the whole stream.
///
/// # Errors
/// The client disconnected, or the socket failed.
pub(super) async fn send_stream(
    buffered: &mut BufferedStream,
    body: Box<StreamBody>,
) -> io::Result<()> {
    let mut sender = Sender {
        buffered,
        body,
        chunk: Chunk::default(),
        is_last: false,
        receipt: None,
    };
    poll_fn(|cx| sender.poll(cx)).await
}

struct Sender<'a> {
    buffered: &'a mut BufferedStream,
    body: Box<StreamBody>,
    /// The part of the chunk that the socket has not taken.
    chunk: Chunk,
    /// Whether this is the last chunk.
    is_last: bool,
    /// Of a stream whose end is in the chunk.
    receipt: Option<EndReceipt>,
}

impl Sender<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.read_ahead(cx)?;
        loop {
            while self.chunk.has_rest() {
                let written = self.chunk.write(self.buffered, cx);
                match ready!(written)? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    n => self.chunk.advance(n),
                }
            }
            ready!(self.buffered.poll_send(cx))?;
            if self.is_last && self.body.is_cut() {
                // Without a last chunk the client knows that the response has no end.
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            if self.is_last {
                if let Some(receipt) = self.receipt.take() {
                    receipt.confirm();
                }
                return Poll::Ready(Ok(()));
            }
            let frame = ready!(Pin::new(self.body.as_mut()).poll_frame(cx));
            let bytes = frame.and_then(|frame| match frame {
                Ok(frame) => frame.into_data().ok(),
                Err(never) => match never {},
            });
            self.is_last = bytes.is_none() || self.body.is_end_stream();
            self.receipt = self.body.take_end_receipt();
            let ends = self.is_last && !self.body.is_cut();
            self.chunk = Chunk::new(bytes.unwrap_or_default(), ends);
        }
    }

    /// Notices a disconnected client. Bytes that arrive meanwhile belong to the next request.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.buffered.is_ahead() {
            return Ok(());
        }
        let mut room = [0; AHEAD_BYTES_MAX];
        let mut into = ReadBuf::new(&mut room);
        match Pin::new(&mut *self.buffered).poll_read(cx, &mut into) {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) if into.filled().is_empty() => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Poll::Ready(Ok(())) => {
                self.buffered.put_back(into.filled());
                Ok(())
            }
        }
    }
}

/// `<length in hex> CRLF <data> CRLF`, the unsent part. A chunk without data would end the body.
#[derive(Default)]
struct Chunk {
    length: [u8; LENGTH_BYTES_MAX],
    /// The unsent part of `length`.
    from: usize,
    upto: usize,
    data: Bytes,
    end: &'static [u8],
}

impl Chunk {
    fn new(data: Bytes, is_last: bool) -> Self {
        let mut chunk = Self {
            end: match (data.is_empty(), is_last) {
                (true, true) => LAST,
                (true, false) => b"",
                (false, true) => LAST_END,
                (false, false) => END,
            },
            ..Self::default()
        };
        if !data.is_empty() {
            let mut room = chunk.length.as_mut_slice();
            // The longest length fits.
            let _ = write!(room, "{:x}\r\n", data.len());
            chunk.upto = LENGTH_BYTES_MAX - room.len();
        }
        chunk.data = data;
        chunk
    }

    fn has_rest(&self) -> bool {
        // `end` is sent last.
        !self.end.is_empty()
    }

    fn write(
        &self,
        buffered: &mut BufferedStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let parts = [&self.length[self.from..self.upto], &self.data, self.end];
        Pin::new(buffered).poll_write_vectored(cx, &parts.map(IoSlice::new))
    }

    fn advance(&mut self, n: usize) {
        let of_length = n.min(self.upto - self.from);
        self.from += of_length;
        let of_data = (n - of_length).min(self.data.len());
        self.data.advance(of_data);
        if self.data.is_empty() {
            // Releases the memory for the next frame.
            self.data = Bytes::new();
        }
        self.end = &self.end[n - of_length - of_data..];
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod chunks_tests {
    use super::*;

    /// The bytes received by a socket that takes `step` bytes at a time.
    fn sent(data: &'static [u8], is_last: bool, step: usize) -> Vec<u8> {
        let mut chunk = Chunk::new(Bytes::from_static(data), is_last);
        let mut out = Vec::new();
        while chunk.has_rest() {
            let parts = [
                &chunk.length[chunk.from..chunk.upto],
                &chunk.data,
                chunk.end,
            ];
            let all = parts.concat();
            let n = step.min(all.len());
            out.extend_from_slice(&all[..n]);
            chunk.advance(n);
        }
        out
    }

    #[test]
    fn chunk_bytes_are_independent_of_write_sizes() {
        let rows: [(&'static [u8], bool, &[u8]); 5] = [
            (b"data: x\n\n", false, b"9\r\ndata: x\n\n\r\n"),
            (b"data: x\n\n", true, b"9\r\ndata: x\n\n\r\n0\r\n\r\n"),
            (b"0123456789abcdef0", false, b"11\r\n0123456789abcdef0\r\n"),
            (b"", true, b"0\r\n\r\n"),
            (b"", false, b""),
        ];
        for (data, is_last, want) in rows {
            for step in 1..=want.len().max(1) {
                assert_eq!(sent(data, is_last, step), want, "{data:?} by {step}");
            }
        }
    }
}
