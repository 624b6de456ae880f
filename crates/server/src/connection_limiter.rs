//! Connection limits per peer address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts connections, in total and per address.
pub(crate) struct ConnectionLimiter {
    counts: Mutex<Counts>,
}

struct Counts {
    connections_max: usize,
    per_ip_max: usize,
    total: usize,
    /// At most one entry per connection.
    per_ip: HashMap<IpAddr, usize>,
}

/// The limit that a connection exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowded {
    /// `connections_max`.
    Server,
    /// `connections_per_ip_max`.
    Address,
}

/// A counted connection; uncounted on drop.
pub(crate) struct Connected {
    peers: Arc<ConnectionLimiter>,
    key: IpAddr,
}

impl ConnectionLimiter {
    /// A limiter without connections.
    pub(crate) fn new(connections_max: usize, per_ip_max: usize) -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::new(Counts {
                connections_max,
                per_ip_max,
                total: 0,
                per_ip: HashMap::new(),
            }),
        })
    }

    /// Changes the limits. Open connections stay open.
    pub(crate) fn rebound(&self, connections_max: usize, per_ip_max: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        (counts.connections_max, counts.per_ip_max) = (connections_max, per_ip_max);
    }

    /// Counts a connection from `ip`.
    ///
    /// # Errors
    /// The limit that the connection exceeds.
    pub(crate) fn connect(self: &Arc<Self>, ip: IpAddr) -> Result<Connected, Crowded> {
        let key = key(ip);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= counts.connections_max {
            return Err(Crowded::Server);
        }
        let from_there = counts.per_ip.get(&key).copied().unwrap_or(0);
        if from_there >= counts.per_ip_max {
            return Err(Crowded::Address);
        }
        counts.total += 1;
        *counts.per_ip.entry(key).or_default() += 1;
        Ok(Connected {
            peers: Arc::clone(self),
            key,
        })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut counts = self
            .peers
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
fn key(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_drop_gives_back() {
        let peers = ConnectionLimiter::new(3, 2);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let a = peers.connect(ip("10.0.0.1")).ok().unwrap();
        let _b = peers.connect(ip("::ffff:10.0.0.1")).ok().unwrap();
        assert_eq!(peers.connect(ip("10.0.0.1")).err(), Some(Crowded::Address));
        let _c = peers.connect(ip("2001:db8::1")).ok().unwrap();
        assert_eq!(peers.connect(ip("10.0.0.9")).err(), Some(Crowded::Server));
        drop(a);
        let _d = peers.connect(ip("2001:db8::2")).ok().unwrap();
        assert_eq!(key(ip("2001:db8::2")), key(ip("2001:db8::ffff")));
        assert_eq!(peers.counts.lock().unwrap().per_ip.len(), 2);
    }
}
