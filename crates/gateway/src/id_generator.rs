//! Unguessable ids, and seeds for requests without one.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes ids and seeds: a counter under a keyed hash (SipHash with 128 secret bits from the operating system), so
/// that known ids do not reveal the next one.
pub struct IdGenerator {
    key: RandomState,
    next: AtomicU64,
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
        }
    }

    /// 64 fresh bits.
    pub(crate) fn next_seed(&self) -> u64 {
        self.key.hash_one(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// 128 fresh bits.
    pub fn next_random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_seed().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_seed().to_be_bytes());
        bytes
    }

    /// A fingerprint of 64 bits under the secret key: equal values have equal fingerprints, which clients cannot
    /// predict.
    pub fn fingerprint_of(&self, of: &impl Hash) -> u64 {
        self.key.hash_one(of)
    }

    /// `prefix` and 128 fresh bits in hexadecimal.
    pub fn prefixed_id(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}{:016x}", self.next_seed(), self.next_seed())
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
    }
}
