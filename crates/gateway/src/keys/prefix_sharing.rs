//! Which requests share cached prompts: by the caller's key, and by a salt in the request.
//!
//! `cached_tokens` and the time to first token reveal whether the beginning of a prompt was computed before. Where
//! other tenants must not learn this, prompts are cached under a salt made of the key's owner.

use super::Caller;
use super::caller::ANONYMOUS;
use engine::CacheSalt;

/// Which keys share cached prompts. Without keys all callers do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixSharing {
    /// Each key has a separate prefix cache.
    #[default]
    PerKey,
    /// All keys share one cache.
    Shared,
}

impl Caller {
    /// Salt of a request's cached prompts; `request` is the salt in the request's body.
    pub(crate) fn cache_salt(&self, sharing: PrefixSharing, request: Option<&str>) -> CacheSalt {
        let owner = match sharing {
            PrefixSharing::PerKey => self.owner,
            PrefixSharing::Shared => ANONYMOUS,
        };
        if owner == ANONYMOUS && request.is_none() {
            return CacheSalt::NONE;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&owner.0.to_le_bytes());
        hasher.update(&[u8::from(request.is_some())]);
        hasher.update(request.unwrap_or_default().as_bytes());
        let mut salt = [0; size_of::<u128>()];
        hasher.finalize_xof().fill(&mut salt);
        CacheSalt(u128::from_le_bytes(salt))
    }
}
