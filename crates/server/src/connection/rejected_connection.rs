//! Connections above a limit: a response that is written without waiting.

use super::client_socket::ClientSocket;
use super::connection_limiter::ConnectionLimit;

/// Sends the error response, as far as one attempt to write gets, and closes the connection. Without a socket in the clear
/// there is no response: a handshake would have to be waited for.
pub(crate) fn reject_connection(socket: Option<&ClientSocket>, limit: ConnectionLimit) {
    let answer: &[u8] = match limit {
        ConnectionLimit::Server => TOO_MANY_CONNECTIONS,
        ConnectionLimit::Address => TOO_MANY_CONNECTIONS_FROM_ADDRESS,
    };
    let _ = match socket {
        Some(ClientSocket::Tcp(stream)) => stream.try_write(answer),
        Some(ClientSocket::Unix(stream)) => stream.try_write(answer),
        Some(ClientSocket::Tls(_)) | None => Ok(0),
    };
    tracing::debug!(?limit, "connection rejected");
}

const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: application/json\r\ncontent-length: 109\r\n\r\n\
{\"error\":{\"message\":\"too many connections\",\"type\":\"server_error\",\"param\":null,\"code\":\"too_many_connections\"}}";

const TOO_MANY_CONNECTIONS_FROM_ADDRESS: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\nretry-after: 1\r\n\
content-type: application/json\r\ncontent-length: 131\r\n\r\n\
{\"error\":{\"message\":\"too many connections from this address\",\"type\":\"rate_limit_error\",\"param\":null,\"code\":\"too_many_connections\"}}";
