//! The caller of a request.

use super::key_usage::KeyUsage;
use super::limit_exceeded::LimitExceeded;
use super::{Key, KeyLimits, KeyPermit, Scopes};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use stream::Owner;

/// Owner of all streams on a server without keys. (No key hashes to owner 0 by chance.)
pub(crate) const ANONYMOUS: Owner = Owner(0);

/// The caller of a request, with the key's permissions. The authentication layer adds the caller to the request's
/// extensions; holding a `Caller` means that the key was checked.
#[derive(Clone)]
pub struct Caller {
    /// Owner of the caller's streams: equal for one key, also after a restart.
    pub owner: Owner,
    pub(crate) name: Arc<str>,
    /// Scopes of the key.
    pub scopes: Scopes,
    pub(crate) limits: KeyLimits,
    pub(crate) weight: u32,
    usage: Arc<KeyUsage>,
}

impl Caller {
    /// Name of the key.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn new(key: &Key, usage: Arc<KeyUsage>) -> Self {
        Self {
            owner: key.hash.stream_owner(),
            name: Arc::from(key.name.as_str()),
            scopes: key.scopes,
            limits: key.limits,
            weight: key.weight,
            usage,
        }
    }

    pub(crate) fn anonymous(usage: Arc<KeyUsage>) -> Self {
        Self {
            owner: ANONYMOUS,
            name: Arc::from("anonymous"),
            scopes: Scopes::all(),
            limits: KeyLimits::default(),
            weight: 1,
            usage,
        }
    }

    /// The owner of streams whose key was removed: without limits, and without a permission.
    pub(crate) fn without_key(owner: Owner, usage: Arc<KeyUsage>) -> Self {
        Self {
            owner,
            name: Arc::from("removed key"),
            scopes: Scopes::default(),
            ..Self::anonymous(usage)
        }
    }

    pub(crate) fn usage(&self) -> &Arc<KeyUsage> {
        &self.usage
    }

    /// Counts a request for generation. To be called before the body is read.
    pub fn count_request(&self, now: Instant) -> Result<(), LimitExceeded> {
        let counted = self.usage.count_request(&self.limits, now);
        counted.inspect_err(|over| over.log_rejection(&self.name))
    }

    /// The right to open `streams` streams. To be called before prompts are tokenized.
    pub fn open_streams_permit(&self, streams: u32) -> Result<KeyPermit, LimitExceeded> {
        KeyPermit::open(self, streams).inspect_err(|over| over.log_rejection(&self.name))
    }

    /// Streams this key has open.
    #[cfg(test)]
    pub(crate) fn open_streams(&self) -> usize {
        self.usage.stream_count()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            owner: Owner(owner),
            name,
            weight,
            ..
        } = self;
        write!(f, "Caller({name}, owner {owner:016x}, weight {weight})")
    }
}
