//! The socket of a client: TCP, TLS over TCP, or a Unix socket.

use super::unix_listener::UnixStream;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The socket of a client.
pub(crate) enum ClientSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// On the heap: a session of TLS is much larger than a socket.
    Tls(Box<TlsStream<TcpStream>>),
}

impl ClientSocket {
    /// Sets the kernel's send buffer. Bytes that the kernel holds beyond the new size stay there until they are
    /// acknowledged; until then the kernel accepts no more.
    pub(super) fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).set_send_buffer_size(bytes),
            Self::Unix(stream) => SockRef::from(stream).set_send_buffer_size(bytes),
            Self::Tls(stream) => SockRef::from(stream.get_ref().0).set_send_buffer_size(bytes),
        }
    }
}

/// Calls the same method of whatever socket it is.
macro_rules! of_each {
    ($this:expr, $stream:ident => $call:expr) => {
        match $this.get_mut() {
            Self::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Self::Unix(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Self::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        of_each!(self, stream => stream.poll_read(cx, into))
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        of_each!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_each!(self, stream => stream.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_each!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_each!(self, stream => stream.poll_shutdown(cx))
    }
}
