//! Callers, their permissions and their rate limits.
//!
//! ```text
//! hash       the key's text       -> BLAKE3, all that is ever kept
//! Keys       a hash               -> a `Caller`            every key is compared, in constant time
//! caller     a `Caller`           -> counted requests, open streams
//! permit     a stream's right     -> charged tokens        given back by its drop
//! ```
//!
//! Keys can be replaced while the server runs. A key that stays keeps its meter; one that went is
//! refused from then on, while the streams it opened run to their end.
//!
//! Everything here takes `now` as an argument and knows neither HTTP nor files, except `over` (which writes the error
//! messages of rejections).

pub(crate) mod caller;
pub(crate) mod gcra;
pub(crate) mod hash;
pub(crate) mod key;
pub(crate) mod key_usage;
pub(crate) mod limit_exceeded;
pub(crate) mod permit;
pub(crate) mod prefix_sharing;
pub(crate) mod scope;

pub use caller::Caller;
pub use hash::KeyHash;
pub use key::{Key, KeyLimits, KeyProblem};
pub use permit::KeyPermit;
pub(crate) use permit::TokenCharge;
pub use prefix_sharing::PrefixSharing;
pub use scope::{Scope, Scopes};

use key_usage::KeyUsage;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;
use subtle::{ConditionallySelectable, ConstantTimeEq};
use wire::clock;

/// Keys a server may have: each presented key is compared with every one of them.
pub const KEYS_MAX: usize = 1024;

/// The keys of a server, or the knowledge that it needs none.
pub struct Keys {
    /// What meters count from.
    epoch: Instant,
    /// The caller of every request, if no keys are required.
    anonymous: Option<Caller>,
    /// At most [`KEYS_MAX`].
    entries: RwLock<Arc<[KeyEntry]>>,
}

/// A key as it is looked up.
struct KeyEntry {
    hash: KeyHash,
    caller: Caller,
}

impl Keys {
    /// No keys: everybody is the same caller, who may do everything.
    pub fn anonymous() -> Self {
        let epoch = clock::now();
        Self {
            epoch,
            anonymous: Some(Caller::anonymous(Arc::new(KeyUsage::new(epoch)))),
            entries: RwLock::new(Arc::from([])),
        }
    }

    /// These keys and nobody else; with none of them, nobody at all.
    ///
    /// # Errors
    /// Every key that cannot be as it is, or that is there twice.
    pub fn new(keys: &[Key]) -> Result<Self, Vec<KeyProblem>> {
        Self::at(keys, clock::now())
    }

    fn at(keys: &[Key], epoch: Instant) -> Result<Self, Vec<KeyProblem>> {
        let none = Self {
            epoch,
            anonymous: None,
            entries: RwLock::new(Arc::from([])),
        };
        none.replace(keys)?;
        Ok(none)
    }

    /// From now on these keys and nobody else. Running streams keep their permits, and a key that
    /// was there before keeps what it has used up. A server that was started without keys stays
    /// open to everybody: this changes nothing then.
    ///
    /// # Errors
    /// As for [`Keys::new`]; then the keys stay as they were.
    pub fn replace(&self, keys: &[Key]) -> Result<(), Vec<KeyProblem>> {
        key::check(keys)?;
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        *entries = keys
            .iter()
            .map(|key| {
                let before = entries.iter().find(|a| a.hash == key.hash);
                let usage = before.map_or_else(
                    || Arc::new(KeyUsage::new(self.epoch)),
                    |entry| Arc::clone(entry.caller.usage()),
                );
                KeyEntry {
                    hash: key.hash,
                    caller: Caller::new(key, usage),
                }
            })
            .collect();
        Ok(())
    }

    /// Whether callers need a key.
    pub fn are_required(&self) -> bool {
        self.anonymous.is_none()
    }

    /// Whose key this is. Takes the same time whichever key it is, and for a stranger's.
    pub fn identify(&self, presented: Option<&[u8]>) -> Option<Caller> {
        if let Some(anonymous) = &self.anonymous {
            return Some(anonymous.clone());
        }
        let hash = KeyHash::of(presented?);
        let entries = Arc::clone(&self.entries.read().unwrap_or_else(PoisonError::into_inner));
        // 0 = nobody, else the place of the key and one more.
        let mut found = 0_u64;
        for (place, entry) in (1_u64..).zip(entries.iter()) {
            found.conditional_assign(&place, entry.hash.ct_eq(&hash));
        }
        let place = usize::try_from(found.checked_sub(1)?).ok()?;
        Some(entries[place].caller.clone())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let names = entries.iter().map(|entry| &entry.caller.name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests;
