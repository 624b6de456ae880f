//! The right of one request to have streams open.

use super::limit_exceeded::LimitExceeded;
use super::{Caller, PrefixSharing};
use engine::{Account, CacheSalt};
use std::time::Instant;
use wire::clock;

/// Open streams of one request, charged to the key. Dropping the permit closes the streams; tokens stay spent.
///
/// The permit keeps the limits of the time of opening: a reload does not affect running streams.
#[derive(Debug)]
pub struct KeyPermit {
    caller: Caller,
    streams: u32,
}

impl KeyPermit {
    pub(crate) fn open(caller: &Caller, streams: u32) -> Result<Self, LimitExceeded> {
        caller
            .usage()
            .open_streams(&caller.limits, streams, clock::now())?;
        Ok(Self {
            caller: caller.clone(),
            streams,
        })
    }

    /// The permit of streams that an earlier process had opened, whatever the limits of the key are now.
    pub(crate) fn restore(caller: &Caller, streams: u32) -> Self {
        caller.usage().restore_streams(streams, clock::now());
        Self {
            caller: caller.clone(),
            streams,
        }
    }

    /// Tenant whose share of the engine the sequences use.
    pub fn account(&self) -> Account {
        Account {
            id: self.caller.owner.0,
            weight: self.caller.weight,
        }
    }

    /// Salt of the request's cached prompts; `request` is the salt in the request's body.
    pub fn cache_salt(&self, sharing: PrefixSharing, request: Option<&str>) -> CacheSalt {
        self.caller.cache_salt(sharing, request)
    }

    /// Charges the prompts' tokens, or returns when the bucket has room for the tokens. To be called once, after
    /// counting and before the prompts run.
    pub fn charge_prompt(&self, tokens: u64, now: Instant) -> Result<(), LimitExceeded> {
        let Caller { limits, name, .. } = &self.caller;
        let charged = self.caller.usage().charge_prompt(limits, tokens, now);
        charged.inspect_err(|over| over.log_rejection(name))
    }

    /// Charges tokens that were generated since the last call.
    pub(crate) fn charge_generated(&self, tokens: u64, now: Instant) {
        self.token_charge().charge(tokens, now);
    }

    /// Charges tokens to the key without holding the streams.
    pub(crate) fn token_charge(&self) -> TokenCharge {
        TokenCharge(self.caller.clone())
    }
}

/// Charges work to a key after the work was done: a key in debt waits longer with the next request.
#[derive(Debug)]
pub(crate) struct TokenCharge(Caller);

impl TokenCharge {
    /// Charges tokens that were computed.
    pub(crate) fn charge(&self, tokens: u64, now: Instant) {
        self.0.usage().charge_generated(&self.0.limits, tokens, now);
    }
}

impl Drop for KeyPermit {
    fn drop(&mut self) {
        self.caller
            .usage()
            .close_streams(self.streams, clock::now());
    }
}
