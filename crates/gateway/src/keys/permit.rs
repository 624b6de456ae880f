//! The right of one request to have its streams open.

use super::limit_exceeded::LimitExceeded;
use super::{Caller, PrefixSharing};
use engine::{Account, CacheSalt};
use std::time::Instant;
use wire::clock;

/// Open streams of one request, charged to its key. Dropping it closes them; tokens stay spent.
///
/// It keeps the limits it was opened under: a reload does not reach into running streams.
#[derive(Debug)]
pub struct KeyPermit {
    caller: Caller,
    streams: u32,
}

impl KeyPermit {
    pub(crate) fn open(caller: &Caller, streams: u32) -> Result<Self, LimitExceeded> {
        caller.usage().open(&caller.limits, streams, clock::now())?;
        Ok(Self {
            caller: caller.clone(),
            streams,
        })
    }

    /// Whose share of the engine its sequences use.
    pub fn account(&self) -> Account {
        Account {
            id: self.caller.owner.0,
            weight: self.caller.weight,
        }
    }

    /// The salt of its cached prompts; `request` is the salt that the request gives itself.
    pub fn cache_salt(&self, sharing: PrefixSharing, request: Option<&str>) -> CacheSalt {
        self.caller.cache_salt(sharing, request)
    }

    /// Charges the prompts' tokens, or says when there is room for them. To be called once, when
    /// they were counted and before they run.
    pub fn prompt(&self, tokens: u64, now: Instant) -> Result<(), LimitExceeded> {
        let Caller { limits, name, .. } = &self.caller;
        let charged = self.caller.usage().prompt(limits, tokens, now);
        charged.inspect_err(|over| over.log(name))
    }

    /// Charges tokens that were generated since the last call.
    pub(crate) fn generated(&self, tokens: u64, now: Instant) {
        self.token_charge().charge(tokens, now);
    }

    /// Where tokens can be charged to the same key by who has not its streams.
    pub(crate) fn token_charge(&self) -> TokenCharge {
        TokenCharge(self.caller.clone())
    }
}

/// Charges a key for what is known only after it was done: who owes waits the longer with the next request.
#[derive(Debug)]
pub(crate) struct TokenCharge(Caller);

impl TokenCharge {
    /// Charges tokens that were computed.
    pub(crate) fn charge(&self, tokens: u64, now: Instant) {
        self.0.usage().generated(&self.0.limits, tokens, now);
    }
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        self.caller.usage().close(self.streams, clock::now());
    }
}
