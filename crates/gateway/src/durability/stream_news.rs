//! Changes of a stream that the recorder has not taken yet. A later change of one kind replaces an earlier one, so the
//! memory is bounded.

use super::ControlState;
use std::sync::Arc;

/// Changes by kind, in the order in which they are recorded.
#[derive(Default)]
pub(crate) struct StreamNews {
    /// Whether an object that is opened stays on this machine.
    pub(crate) is_local: bool,
    /// The description of a stream that begins.
    pub(crate) open: Option<Arc<[u8]>>,
    pub(crate) claim: Option<Claim>,
    pub(crate) prepared: Option<PreparedNews>,
    pub(crate) control: Option<ControlState>,
    pub(crate) is_paused: Option<bool>,
    /// The error of a stream that never starts, or a stored object.
    pub(crate) outcome: Option<Arc<[u8]>>,
    /// Whether the tokens of an earlier process are not needed for a rewriting: an object that is not a stream.
    pub(crate) has_no_tokens: bool,
}

/// The prompts of a submitted stream.
pub(crate) struct PreparedNews {
    /// Body of the record.
    pub(crate) body: Box<[u8]>,
    /// The description with these prompts, for a rewriting.
    pub(crate) description: Arc<[u8]>,
}

/// A record `Claimed`: this process takes a recovered stream over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Grows with each owner.
    pub generation: u64,
    /// The process.
    pub instance: u64,
    /// How many times the stream was submitted to an engine.
    pub attempt: u32,
    /// The caller's code of the reason.
    pub why: u32,
    /// Tokens of all choices at the claim.
    pub tokens: u64,
}

impl Claim {
    /// The claim as a record.
    pub(crate) fn to_record(self) -> journal::Record<'static> {
        let Self {
            generation,
            instance,
            attempt,
            why,
            tokens,
        } = self;
        journal::Record::Claimed {
            generation,
            instance,
            attempt,
            why,
            tokens,
        }
    }
}
