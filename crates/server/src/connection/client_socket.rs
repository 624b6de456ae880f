//! The socket of a client: TCP, TLS over TCP, or a Unix socket.
//!
//! Closing a connection whose client still sends a request that was answered.
//!
//! The system answers bytes that the server has not read with a reset when the socket is closed, and a reset makes the client's
//! system drop an answer that the client has not read: a client that writes its whole body before it reads would see a
//! broken connection in place of a 413. So the socket is closed for writing first, and what still arrives is read and dropped,
//! within bounds of bytes and time.

use super::handover::Handover;
use super::send_buffer::SendBuffer;
use crate::config::server_config::ServerConfig;
use crate::metrics::CountedSocket;
use bytes::{Buf, Bytes};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
#[cfg(not(unix))]
use tokio::net::TcpListener as UnixListener;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

#[cfg(not(unix))]
pub(crate) use tokio::net::TcpStream as UnixStream;

#[cfg(unix)]
pub(crate) use tokio::net::UnixStream;

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

/// A listening socket at the configured address.
pub(crate) fn open_listener(config: &ServerConfig) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(config.bind),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Set before the handshake, so that it bounds the connection's window from the beginning.
    socket.set_send_buffer_size(config.send_buffer_bytes)?;
    socket.bind(&config.bind.into())?;
    socket.listen(i32::try_from(config.backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// Options of one accepted connection.
pub(crate) fn set_options(stream: &TcpStream, config: &ServerConfig) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_send_buffer_size(config.send_buffer_bytes)?;
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    socket.set_tcp_notsent_lowat(config.unsent_bytes_max)?;
    Ok(())
}

/// Bytes that are read and dropped.
const DROPPED_BYTES_MAX: usize = 256 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Time without a byte after which the client counts as done: an idle client does not close before its next request.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Reads and drops what the client still sends on a socket that is closed for writing, for `time_max` at most.
pub(super) async fn drop_rest(mut socket: BufferedStream, time_max: Duration) {
    let mut piece = vec![0; PIECE_BYTES];
    let all = async {
        let mut bytes = 0;
        while bytes < DROPPED_BYTES_MAX
            && let Ok(Ok(count @ 1..)) = timeout(SILENCE_MAX, socket.read(&mut piece)).await
        {
            bytes += count;
        }
    };
    let _ = timeout(time_max, all).await;
}

/// A listening Unix socket, whose file is removed when dropped.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    /// Dropped before the listener: the next server replaces a file that no process listens on.
    _file: SocketFile,
    pub(crate) listener: UnixListener,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl UnixSocket {
    /// Listens at this path. The file of a server that is gone is replaced. Who may connect is decided by the file's
    /// permissions: this mode, or what the process's umask leaves.
    ///
    /// # Errors
    /// Another server listens there, another file is there, or the socket cannot be made.
    #[cfg(unix)]
    pub(crate) fn open(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        if is_left_over(path)? {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        // From here on the drop removes the file.
        let file = SocketFile(path.to_owned());
        if let Some(mode) = mode {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        Ok(Self {
            _file: file,
            listener,
        })
    }

    /// Opens nothing.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(unix))]
    pub(crate) fn open(_: &Path, _: Option<u32>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that is gone already, or that cannot be removed, is replaced by the next server.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether the path is a socket that no process listens on.
#[cfg(unix)]
fn is_left_over(path: &Path) -> io::Result<bool> {
    use io::ErrorKind;
    use std::os::unix::fs::FileTypeExt;
    let is_socket = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type().is_socket(),
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(false),
        Err(why) => return Err(why),
    };
    let taken = |why: &str| Err(io::Error::new(ErrorKind::AddrInUse, why));
    if !is_socket {
        return taken("a file is there that is no socket");
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => taken("a server listens there"),
        Err(why) if why.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(why) => Err(why),
    }
}

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
