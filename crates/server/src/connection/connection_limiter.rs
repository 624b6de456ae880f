//! Connection limits per peer address.

use super::client_socket::ClientSocket;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts connections, in total and per address.
pub(crate) struct ConnectionLimiter {
    counts: Mutex<ConnectionCounts>,
}

struct ConnectionCounts {
    connections_max: usize,
    per_ip_max: usize,
    total: usize,
    /// At most one entry per connection.
    per_ip: HashMap<IpAddr, usize>,
}

/// The limit that a connection exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLimit {
    /// `connections_max`.
    Server,
    /// `connections_per_ip_max`.
    Address,
}

/// A counted connection; uncounted on drop.
pub(crate) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    key: IpAddr,
}

impl ConnectionLimiter {
    /// A limiter without connections.
    pub(crate) fn new(connections_max: usize, per_ip_max: usize) -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::new(ConnectionCounts {
                connections_max,
                per_ip_max,
                total: 0,
                per_ip: HashMap::new(),
            }),
        })
    }

    /// Changes the limits. Open connections stay open.
    pub(crate) fn set_limits(&self, connections_max: usize, per_ip_max: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        (counts.connections_max, counts.per_ip_max) = (connections_max, per_ip_max);
    }

    /// Counts a connection from `ip`.
    ///
    /// # Errors
    /// The limit that the connection exceeds.
    pub(crate) fn admit_connection(
        self: &Arc<Self>,
        ip: IpAddr,
    ) -> Result<ConnectionPermit, ConnectionLimit> {
        let key = counted_address(ip);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= counts.connections_max {
            return Err(ConnectionLimit::Server);
        }
        let from_there = counts.per_ip.get(&key).copied().unwrap_or(0);
        if from_there >= counts.per_ip_max {
            return Err(ConnectionLimit::Address);
        }
        counts.total += 1;
        *counts.per_ip.entry(key).or_default() += 1;
        Ok(ConnectionPermit {
            limiter: Arc::clone(self),
            key,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self
            .limiter
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(n) = counts.per_ip.get_mut(&self.key) {
            *n -= 1;
            if *n == 0 {
                counts.per_ip.remove(&self.key);
            }
        }
    }
}

/// The address that is counted: an IPv4 address, or an IPv6 /64 network, which belongs to one customer.
fn counted_address(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_limits_hold_and_drop_releases() {
        let limiter = ConnectionLimiter::new(3, 2);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let a = limiter.admit_connection(ip("10.0.0.1")).ok().unwrap();
        let _b = limiter
            .admit_connection(ip("::ffff:10.0.0.1"))
            .ok()
            .unwrap();
        assert_eq!(
            limiter.admit_connection(ip("10.0.0.1")).err(),
            Some(ConnectionLimit::Address)
        );
        let _c = limiter.admit_connection(ip("2001:db8::1")).ok().unwrap();
        assert_eq!(
            limiter.admit_connection(ip("10.0.0.9")).err(),
            Some(ConnectionLimit::Server)
        );
        drop(a);
        let _d = limiter.admit_connection(ip("2001:db8::2")).ok().unwrap();
        assert_eq!(
            counted_address(ip("2001:db8::2")),
            counted_address(ip("2001:db8::ffff"))
        );
        assert_eq!(limiter.counts.lock().unwrap().per_ip.len(), 2);
    }
}
