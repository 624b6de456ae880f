//! Names of requests and of sequences.

/// The id of a request, unique within one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A sequence's position in arrival order: the request's queue number, then the choice number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(pub(crate) u64, pub(crate) u32);

impl Age {
    /// Later than every sequence.
    pub(crate) const MAX: Self = Self(u64::MAX, u32::MAX);
}
