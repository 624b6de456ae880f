//! An API key, as configured.

use super::{KEYS_MAX, Scopes};
use std::fmt;
use std::num::NonZeroU32;
use stream::Owner;
use subtle::{Choice, ConstantTimeEq};

/// Characters of a key's name.
pub(crate) const NAME_CHARS_MAX: usize = 64;
/// The largest rate of a limit. Up to here rounding to nanoseconds gives a caller under 0.2% more.
const PER_MIN_MAX: u32 = 100_000_000;
/// The largest weight.
pub(crate) const WEIGHT_MAX: u32 = 1000;

/// An API key: name, permissions and limits. The key's text is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Letters, digits, `.`, `_` and `-`; the name appears in logs and metrics.
    pub name: String,
    /// Hash of the key's text.
    pub hash: KeyHash,
    /// Permitted uses; at least one.
    pub scopes: Scopes,
    /// How much.
    pub limits: KeyLimits,
    /// Fair-share weight relative to other keys, from 1 to 1000.
    pub weight: u32,
}

/// Limits of a key; `None` = no limit.
///
/// A rate is a bucket that holds one minute's worth and fills evenly: after a pause, a whole minute's worth at once,
/// then at the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Choices that may be open at one time (a request with `n` = 3 opens three).
    pub concurrent_streams: Option<NonZeroU32>,
    /// Requests for generation, also those that are rejected later.
    pub requests_per_min: Option<NonZeroU32>,
    /// Tokens of prompts and answers together. A prompt is charged before the prompt runs, and rejected when the
    /// bucket has too few tokens; an answer is charged while generated and never cut, so the bucket may go below
    /// empty: then no request is admitted until the bucket has filled again.
    pub tokens_per_min: Option<NonZeroU32>,
}

/// Why a key is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key {name:?}: {why}")]
pub struct KeyProblem {
    /// Which.
    pub name: String,
    /// Why.
    pub why: String,
}

/// Every problem of these keys.
pub(crate) fn check_keys(keys: &[Key]) -> Result<(), Vec<KeyProblem>> {
    let mut problems = Vec::new();
    if keys.len() > KEYS_MAX {
        let why = format!("{} keys, at most {KEYS_MAX}", keys.len());
        return Err(vec![KeyProblem {
            name: "keys".to_owned(),
            why,
        }]);
    }
    for (i, key) in keys.iter().enumerate() {
        let before = &keys[..i];
        let mut found = |wrong: bool, why: &str| {
            if wrong {
                let (name, why) = (key.name.clone(), why.to_owned());
                problems.push(KeyProblem { name, why });
            }
        };
        found(
            !is_name(&key.name),
            "a name has 1 to 64 letters, digits, '.', '_' or '-'",
        );
        found(key.scopes.is_empty(), "a key needs at least one scope");
        found(
            !(1..=WEIGHT_MAX).contains(&key.weight),
            "a weight is from 1 to 1000",
        );
        found(
            key.limits
                .named_rates()
                .any(|rate| rate.get() > PER_MIN_MAX),
            "a rate is at most 100000000 per minute",
        );
        found(
            before.iter().any(|b| b.name == key.name),
            "this name is used twice",
        );
        found(
            before.iter().any(|b| b.hash == key.hash),
            "another name has the same key",
        );
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

impl KeyLimits {
    fn named_rates(&self) -> impl Iterator<Item = NonZeroU32> {
        [self.requests_per_min, self.tokens_per_min]
            .into_iter()
            .flatten()
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(allowed)
}

/// The BLAKE3 hash of a key's text. Neither salted nor slow: a key has 256 random bits and cannot be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a presented key.
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

    /// Owner of this key's streams: a number that survives restarts and, as a hash of the hash, reveals neither.
    pub(crate) fn stream_owner(self) -> Owner {
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
