//! The right of one request to have streams open, and the errors of a key that is over a limit.

use super::{Caller, PrefixSharing};
use engine::{Account, CacheSalt};
use generate::error::{ApiError, Blame, ErrorKind};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};
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

/// A limit of the caller's key that the request came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// Too many requests in the last minute.
    Requests { per_min: NonZeroU32, wait: Duration },
    /// Too many tokens in the last minute.
    Tokens { per_min: NonZeroU32, wait: Duration },
    /// Too many streams open.
    Streams { max: NonZeroU32, wait: Duration },
    /// A prompt that is more than a minute's worth, however long one waits.
    Prompt { per_min: NonZeroU32, tokens: u64 },
    /// More choices in one request than may be open at all.
    Choices { max: NonZeroU32, streams: u32 },
}

impl LimitExceeded {
    /// The limit's name, for metrics.
    pub(crate) fn limit_name(self) -> &'static str {
        match self {
            Self::Requests { .. } => "requests_per_min",
            Self::Tokens { .. } | Self::Prompt { .. } => "tokens_per_min",
            Self::Streams { .. } | Self::Choices { .. } => "concurrent_streams",
        }
    }

    /// Logs the limit for the operator.
    pub(crate) fn log_rejection(self, name: &str) {
        tracing::debug!(key = name, limit = self.limit_name(), "over its limit");
    }

    fn error_message(self) -> String {
        match self {
            Self::Requests { per_min, .. } => {
                format!("this key may make {per_min} requests per minute")
            }
            Self::Tokens { per_min, .. } => {
                format!("this key may use {per_min} tokens per minute, and has used them")
            }
            Self::Streams { max, .. } => {
                format!("this key may have {max} streams open at one time")
            }
            Self::Prompt { per_min, tokens } => {
                format!("the prompt has {tokens} tokens; this key may use {per_min} per minute")
            }
            Self::Choices { max, streams } => format!(
                "the request asks for {streams} answers; this key may have {max} open at one time"
            ),
        }
    }

    /// When a retry may succeed; `None`: never.
    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Requests { wait, .. }
            | Self::Tokens { wait, .. }
            | Self::Streams { wait, .. } => Some(wait),
            Self::Prompt { .. } | Self::Choices { .. } => None,
        }
    }
}

impl From<LimitExceeded> for ApiError {
    fn from(over: LimitExceeded) -> Self {
        let (kind, code) = match over {
            LimitExceeded::Requests { .. }
            | LimitExceeded::Tokens { .. }
            | LimitExceeded::Streams { .. } => (ErrorKind::RateLimited, "rate_limit_exceeded"),
            LimitExceeded::Prompt { .. } => (ErrorKind::TooLarge, "prompt_over_quota"),
            LimitExceeded::Choices { .. } => (ErrorKind::Invalid, "choices_over_quota"),
        };
        let error = Self::new(kind, Blame::Caller, code, over.error_message());
        Self {
            retry_after: over.retry_after(),
            ..error
        }
    }
}
