//! Unguessable ids, and seeds for requests without one.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes ids and seeds: a counter under a keyed hash (SipHash with 128 secret bits from the operating system), so
/// that known ids do not reveal the next one. In a cluster, an id begins with its gateway's number, which others ask first.
pub struct IdGenerator {
    key: RandomState,
    next: AtomicU64,
    gateway: OnceLock<u16>,
}

impl Default for IdGenerator {
    fn default() -> Self {
        Self::new()
    }
}

impl IdGenerator {
    /// A source with a fresh key.
    pub fn new() -> Self {
        Self {
            key: RandomState::new(),
            next: AtomicU64::new(0),
            gateway: OnceLock::new(),
        }
    }

    /// From now on, ids begin with this number of the gateway. Only the first call counts.
    pub fn set_gateway(&self, number: u16) {
        let _ = self.gateway.set(number);
    }

    /// 64 fresh bits.
    pub(crate) fn next_seed(&self) -> u64 {
        self.key.hash_one(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// 128 fresh bits; in a cluster, the gateway's number and 112 fresh bits.
    pub fn next_random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_seed().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_seed().to_be_bytes());
        if let Some(number) = self.gateway.get() {
            bytes[..2].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// A fingerprint of 64 bits under the secret key: equal values have equal fingerprints, which clients cannot
    /// predict.
    pub fn fingerprint_of(&self, of: &impl Hash) -> u64 {
        self.key.hash_one(of)
    }

    /// `prefix` and [`IdGenerator::next_random`] in hexadecimal.
    pub fn prefixed_id(&self, prefix: &str) -> String {
        format!("{prefix}{:032x}", u128::from_be_bytes(self.next_random()))
    }
}

#[cfg(test)]
mod tests {
    use super::IdGenerator;

    #[test]
    fn ids_differ_and_have_a_fixed_length() {
        let idents = IdGenerator::new();
        let (a, b) = (idents.prefixed_id("x-"), idents.prefixed_id("x-"));
        assert_ne!(a, b);
        assert_eq!(a.len(), 2 + 32);
        assert_ne!(IdGenerator::new().next_seed(), idents.next_seed());
        idents.set_gateway(0x0a1b);
        let (a, b) = (idents.prefixed_id("x-"), idents.prefixed_id("x-"));
        assert!(a.starts_with("x-0a1b") && b.starts_with("x-0a1b") && a != b);
    }
}
