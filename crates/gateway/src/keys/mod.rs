//! Callers, their permissions and their rate limits.
//!
//! ```text
//! key        the key's text       -> BLAKE3, the only stored form
//! Keys       a hash               -> a `Caller`            every key is compared, in constant time
//! caller     a `Caller`           -> counted requests, open streams
//! key_usage  a stream's right     -> charged tokens        released on drop
//! ```
//!
//! Keys can be replaced while the server runs. A key that stays in the list keeps the counted usage; a removed key
//! is rejected from then on, while streams opened with the key run to their end.
//!
//! All functions take `now` as an argument. Only `permit` knows errors: error messages of rejections.

use self::key_usage::KeyUsage;
use crate::locks::{read, write};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Instant;
use stream::Owner;
use subtle::{ConditionallySelectable, ConstantTimeEq};
use wire::clock;

pub(crate) mod caller;
pub(crate) mod key;
pub(crate) mod key_usage;

pub use caller::{Caller, PrefixSharing, Scope, Scopes};
pub use key::{Key, KeyHash, KeyLimits, KeyProblem};
pub use key_usage::KeyPermit;
pub(crate) use key_usage::TokenCharge;

/// Most keys of a server: each presented key is compared with all of them.
pub const KEYS_MAX: usize = 1024;

/// The API keys of a server, or the setting that no key is needed.
pub struct Keys {
    /// Begin of the time that usage counters use.
    epoch: Instant,
    /// The caller of every request, if no keys are required.
    anonymous: Option<Caller>,
    /// At most [`KEYS_MAX`].
    entries: RwLock<Arc<[KeyEntry]>>,
    /// Number of gateways that divide the keys' limits; 1 outside a cluster.
    gateways: Arc<AtomicU32>,
}

/// A key in the table of keys.
struct KeyEntry {
    hash: KeyHash,
    caller: Caller,
}

impl Keys {
    /// No keys: every request has the same caller, with all scopes.
    pub fn anonymous() -> Self {
        let (epoch, gateways) = (clock::now(), one_gateway());
        let usage = KeyUsage::new(epoch, Arc::clone(&gateways));
        Self {
            epoch,
            anonymous: Some(Caller::anonymous(Arc::new(usage))),
            entries: RwLock::new(Arc::from([])),
            gateways,
        }
    }

    /// Exactly these keys; without any key, every request is rejected.
    ///
    /// # Errors
    /// All keys that are invalid or listed twice.
    pub fn new(keys: &[Key]) -> Result<Self, Vec<KeyProblem>> {
        Self::at_time(keys, clock::now())
    }

    fn at_time(keys: &[Key], epoch: Instant) -> Result<Self, Vec<KeyProblem>> {
        let none = Self {
            epoch,
            anonymous: None,
            entries: RwLock::new(Arc::from([])),
            gateways: one_gateway(),
        };
        none.replace(keys)?;
        Ok(none)
    }

    /// From now on this process, as one of so many gateways, has its part of the keys' limits. What was counted stays: a
    /// bucket that is half empty is half empty.
    pub fn set_gateways(&self, count: u32) {
        self.gateways.store(count.max(1), Ordering::Relaxed);
    }

    fn new_usage(&self) -> Arc<KeyUsage> {
        Arc::new(KeyUsage::new(self.epoch, Arc::clone(&self.gateways)))
    }

    fn entries(&self) -> Arc<[KeyEntry]> {
        Arc::clone(&read(&self.entries))
    }

    /// Replaces the keys. Running streams keep their permits, and a key that stays in the list keeps the counted
    /// usage. A server that was started without keys stays open: the call changes nothing then.
    ///
    /// # Errors
    /// As for [`Keys::new`]; then the keys stay as they were.
    pub fn replace(&self, keys: &[Key]) -> Result<(), Vec<KeyProblem>> {
        key::check_keys(keys)?;
        let mut entries = write(&self.entries);
        *entries = keys
            .iter()
            .map(|key| {
                let before = entries.iter().find(|a| a.hash == key.hash);
                let usage = before.map(|entry| Arc::clone(entry.caller.usage()));
                KeyEntry {
                    hash: key.hash,
                    caller: Caller::new(key, usage.unwrap_or_else(|| self.new_usage())),
                }
            })
            .collect();
        Ok(())
    }

    /// Whether callers need a key.
    pub fn are_required(&self) -> bool {
        self.anonymous.is_none()
    }

    /// A digest of all keys, to compare the key files of several processes; empty where no key is required.
    pub fn digest(&self) -> String {
        if !self.are_required() {
            return String::new();
        }
        let entries = self.entries();
        let mut hashes: Vec<_> = entries.iter().map(|entry| entry.hash.to_hex()).collect();
        hashes.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for hash in &hashes {
            hasher.update(hash.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The least of the numbers by which streams name their keys, at most so many, in order: two key files that have keys in
    /// common seldom have other ones.
    pub fn least_owners(&self, count: usize) -> Vec<u64> {
        let entries = self.entries();
        let mut owners: Vec<_> = entries.iter().map(|entry| entry.caller.owner.0).collect();
        owners.sort_unstable();
        owners.truncate(count);
        owners
    }

    /// The name of the key that owns these streams; `None` for a key that was removed, and without keys.
    pub fn name_of(&self, owner: Owner) -> Option<Arc<str>> {
        let entries = self.entries();
        let mut callers = entries.iter().map(|entry| &entry.caller);
        let caller = callers.find(|caller| caller.owner == owner)?;
        Some(Arc::clone(&caller.name))
    }

    /// The caller with this key. Takes equally long for every key, known or unknown.
    pub fn identify(&self, presented: Option<&[u8]>) -> Option<Caller> {
        if let Some(anonymous) = &self.anonymous {
            return Some(anonymous.clone());
        }
        let hash = KeyHash::of(presented?);
        let entries = self.entries();
        // 0: unknown, else the index of the key plus one.
        let mut found = 0_u64;
        for (place, entry) in (1_u64..).zip(entries.iter()) {
            found.conditional_assign(&place, entry.hash.ct_eq(&hash));
        }
        let place = usize::try_from(found.checked_sub(1)?).ok()?;
        Some(entries[place].caller.clone())
    }

    /// The caller with this number, in whose name another gateway of the cluster asks.
    pub fn caller_of(&self, owner: Owner) -> Option<Caller> {
        if let Some(anonymous) = &self.anonymous {
            return Some(anonymous.clone());
        }
        let entries = self.entries();
        let mut callers = entries.iter().map(|entry| &entry.caller);
        callers.find(|caller| caller.owner == owner).cloned()
    }

    /// The permit of streams that an earlier process opened for this owner: never rejected, without limits if the key
    /// was removed.
    pub(crate) fn recovered_permit(&self, owner: Owner, streams: u32) -> KeyPermit {
        let entries = self.entries();
        let listed = entries.iter().map(|entry| &entry.caller);
        let mut callers = self.anonymous.iter().chain(listed);
        let removed = || Caller::without_key(owner, self.new_usage());
        let caller = callers.find(|caller| caller.owner == owner);
        KeyPermit::restore(&caller.cloned().unwrap_or_else(removed), streams)
    }
}

fn one_gateway() -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(1))
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = read(&self.entries);
        let names = entries.iter().map(|entry| &entry.caller.name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests;
