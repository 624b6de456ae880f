//! What is kept of a key.

use std::fmt;
use stream::Owner;
use subtle::{Choice, ConstantTimeEq};

/// The BLAKE3 hash of a key's text. It is not salted or slow: a key has 256 random bits, so there
/// is nothing to guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a key as it is presented.
    pub fn of(key: &[u8]) -> Self {
        Self(*blake3::hash(key).as_bytes())
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text)
            .ok()
            .map(|hash| Self(*hash.as_bytes()))
    }

    /// Writes 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Whom streams of this key belong to: a number that survives restarts and, being a hash of the
    /// hash, tells nothing about either.
    pub(crate) fn owner(self) -> Owner {
        let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(&self.0).as_bytes();
        Owner(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl ConstantTimeEq for KeyHash {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(..)")
    }
}
