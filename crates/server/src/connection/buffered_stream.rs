//! A socket with bytes that were read ahead.

use super::client_socket::ClientSocket;
use super::handover::Handover;
use super::send_buffer::SendBuffer;
use crate::metrics::CountedSocket;
use bytes::{Buf, Bytes};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket with a buffer of bytes that were read ahead. A flush is reported to the handover.
pub(super) struct BufferedStream {
    /// On the heap: the future of a connection holds it where it is created, too.
    socket: CountedSocket<Box<ClientSocket>>,
    /// Bytes of the next request that arrived while a response was sent.
    ahead: Bytes,
    handover: Arc<Handover>,
    send_buffer: Arc<SendBuffer>,
    /// Whether the socket has the large send buffer.
    has_large_buffer: bool,
}

impl BufferedStream {
    /// A socket without bytes read ahead.
    pub(super) fn new(
        socket: CountedSocket<Box<ClientSocket>>,
        handover: Arc<Handover>,
        send_buffer: Arc<SendBuffer>,
    ) -> Self {
        Self {
            socket,
            ahead: Bytes::new(),
            handover,
            send_buffer,
            has_large_buffer: false,
        }
    }

    fn fit_send_buffer(&mut self) {
        let socket = self.socket.inner();
        self.send_buffer
            .apply_size(socket, &mut self.has_large_buffer);
    }

    /// Sends what the socket's encryption holds back, without a report to the handover.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// Whether bytes were read ahead.
    pub(super) fn is_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Returns bytes that were read ahead; the next read gets these bytes first.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        debug_assert!(self.ahead.is_empty(), "one reader at a time");
        // A copy, because the bytes lie in a buffer of 8 KiB that is mostly empty.
        self.ahead = Bytes::copy_from_slice(bytes);
    }
}

impl AsyncRead for BufferedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, into);
        }
        let n = self.ahead.len().min(into.remaining());
        into.put_slice(&self.ahead[..n]);
        self.ahead.advance(n);
        if self.ahead.is_empty() {
            self.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BufferedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fit_send_buffer();
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fit_send_buffer();
        Pin::new(&mut self.socket).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.handover.head_flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
