//! A connection's bytes, with what was read ahead of their use.

use super::handover::Handover;
use super::send_buffer::SendBuffer;
use crate::metrics::Wire;
use bytes::{Buf, Bytes};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A socket that may have been read ahead of who reads it now, and that says when all is handed over to it.
pub(super) struct Line {
    wire: Wire<TcpStream>,
    /// Bytes of the next request that came while the answer before it was sent.
    ahead: Bytes,
    handover: Arc<Handover>,
    send_buffer: Arc<SendBuffer>,
    /// The state of the send buffer that the socket has.
    has_large_buffer: bool,
}

impl Line {
    /// Nothing was read.
    pub(super) fn new(
        wire: Wire<TcpStream>,
        handover: Arc<Handover>,
        send_buffer: Arc<SendBuffer>,
    ) -> Self {
        Self {
            wire,
            ahead: Bytes::new(),
            handover,
            send_buffer,
            has_large_buffer: false,
        }
    }

    fn fit_send_buffer(&mut self) {
        let socket = self.wire.socket();
        self.send_buffer.apply(socket, &mut self.has_large_buffer);
    }

    /// Whether bytes wait that nobody has used.
    pub(super) fn is_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Puts bytes that were read, and are of what comes next, before what the socket will bring.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        debug_assert!(self.ahead.is_empty(), "one reader at a time");
        // A copy: what was read lies in a buffer of 8 KiB, and is mostly nothing.
        self.ahead = Bytes::copy_from_slice(bytes);
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.wire).poll_read(cx, into);
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

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fit_send_buffer();
        Pin::new(&mut self.wire).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fit_send_buffer();
        Pin::new(&mut self.wire).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.wire).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.handover.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}
