//! Socket options that avoid delays of tokens and reveal slow readers early.

use crate::config::server_config::ServerConfig;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use tokio::net::{TcpListener, TcpStream};

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
