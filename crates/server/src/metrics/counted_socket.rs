//! Metrics of connections.

use super::Metrics;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that is counted as open until drop, and whose bytes are counted.
pub(crate) struct CountedSocket<S> {
    socket: S,
    metrics: Arc<Metrics>,
}

impl<S> CountedSocket<S> {
    /// Counts an accepted connection.
    pub(crate) fn new(socket: S, metrics: Arc<Metrics>) -> Self {
        metrics.connections_accepted.add(1);
        metrics.connections_open.increment();
        Self { socket, metrics }
    }

    /// The wrapped socket.
    pub(crate) fn inner(&self) -> &S {
        &self.socket
    }
}

impl<S> Drop for CountedSocket<S> {
    fn drop(&mut self) {
        self.metrics.connections_open.decrement();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, into);
        let received = into.filled().len() - before;
        self.metrics.bytes_received.add(received as u64);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        if let Poll::Ready(Ok(n)) = written {
            self.metrics.bytes_sent.add(n as u64);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        if let Poll::Ready(Ok(n)) = written {
            self.metrics.bytes_sent.add(n as u64);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
