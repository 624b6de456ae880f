//! Numbers of the record kinds. A number is never used again for another kind.

pub(crate) const OPEN: u8 = 1;
pub(crate) const STARTED: u8 = 2;
pub(crate) const TOKENS: u8 = 3;
pub(crate) const STEERED: u8 = 4;
pub(crate) const PAUSED: u8 = 5;
pub(crate) const BROKE: u8 = 6;
pub(crate) const ENDED: u8 = 7;
pub(crate) const CLAIMED: u8 = 8;
pub(crate) const KEPT: u8 = 9;
pub(crate) const FORGOTTEN: u8 = 10;
pub(crate) const SEAL: u8 = 11;
pub(crate) const GAP: u8 = 12;
pub(crate) const PREPARED: u8 = 13;

/// Flags of a record of tokens.
pub(crate) const HAS_LOGPROBS: u8 = 1;
pub(crate) const HAS_ALTERNATIVES: u8 = 2;
