//! Owners of streams, and callers.

/// Owner of a stream: an opaque number of the API key that opened the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// Caller of a registry operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Sees the streams of this owner; streams of other owners do not exist for this caller.
    Owner(Owner),
    /// Sees all streams.
    Admin,
}

impl Caller {
    /// Whether this caller may see a stream of `owner`.
    pub fn may_see(self, owner: Owner) -> bool {
        match self {
            Self::Owner(own) => own == owner,
            Self::Admin => true,
        }
    }
}
