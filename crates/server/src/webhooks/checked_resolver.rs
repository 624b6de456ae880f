//! Addresses of a receiver.
//!
//! A name is resolved once for each attempt, every address is checked, and the client connects to these very addresses: a
//! name that resolves to another address a moment later (DNS rebinding) gains nothing.

use gateway::webhooks::is_public;
use std::net::{SocketAddr, ToSocketAddrs};
use std::{fmt, io};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Addresses to which a connection is tried, one after another.
const ADDRESSES_MAX: usize = 8;

/// A resolver that rejects a name with an address that is not public.
#[derive(Debug)]
pub(super) struct CheckedResolver {
    pub(super) allow_private: bool,
}

/// A name with an address that is not public.
#[derive(Debug)]
struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host has an address that is not public")
    }
}

impl std::error::Error for NotPublic {}

impl Resolver for CheckedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let name = uri.scheme().zip(uri.authority());
        let name = name.and_then(|(scheme, host)| DefaultResolver::host_and_port(scheme, host));
        // Without a timeout of its own: the resolver of the system has one, and the thread has nothing else to do.
        let found = name.ok_or(Error::HostNotFound)?.to_socket_addrs()?;
        let addresses = self.check(found.collect()).map_err(Error::Io)?;
        let mut resolved = self.empty();
        for address in addresses.into_iter().take(ADDRESSES_MAX) {
            resolved.push(address);
        }
        if resolved.is_empty() {
            return Err(Error::HostNotFound);
        }
        Ok(resolved)
    }
}

impl CheckedResolver {
    /// All addresses, or an error if one of them is not allowed.
    fn check(&self, addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        let is_allowed = |address: &SocketAddr| self.allow_private || is_public(address.ip());
        if addresses.iter().all(is_allowed) {
            Ok(addresses)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, NotPublic))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_private_address_among_public_ones_is_rejected() {
        let address = |text: &str| SocketAddr::new(text.parse().expect("an address"), 443);
        let mixed = vec![address("8.8.8.8"), address("::ffff:10.0.0.1")];
        let public = vec![address("8.8.8.8"), address("2606:4700::1111")];
        let resolver = |allow_private| CheckedResolver { allow_private };
        assert!(resolver(false).check(mixed.clone()).is_err());
        assert_eq!(
            resolver(false).check(public.clone()).expect("public"),
            public
        );
        assert_eq!(resolver(true).check(mixed.clone()).expect("allowed"), mixed);
    }
}
