//! Callers: what a key permits, and with which callers it shares cached prompts.
//!
//! `cached_tokens` and the time to first token reveal whether the beginning of a prompt was computed before. Where other
//! tenants must not learn this, prompts are cached under a salt made of the key's owner.

use super::key_usage::{KeyUsage, LimitExceeded};
use super::{Key, KeyLimits, KeyPermit};
use engine::CacheSalt;
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

/// A kind of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Generating, and everything about one's own streams.
    Inference,
    /// Seeing and steering everybody's streams.
    Admin,
    /// Reading figures.
    Metrics,
}

impl Scope {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Inference, Self::Admin, Self::Metrics];

    /// Name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }

    /// The scope that is spelled so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Every scope.
    pub const fn all() -> Self {
        Self::of(&Scope::ALL)
    }

    /// These scopes.
    pub const fn of(scopes: &[Scope]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < scopes.len() {
            bits |= scopes[i].bit();
            i += 1;
        }
        Self(bits)
    }

    /// Whether the set contains a scope.
    pub fn has(self, scope: Scope) -> bool {
        self.has_any(Self::of(&[scope]))
    }

    /// Whether the sets share a scope.
    pub fn has_any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes of the set.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |&scope| self.has(scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Scope::name).collect();
        f.write_str(&names.join(" or "))
    }
}

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
