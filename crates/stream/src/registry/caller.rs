//! Whose a stream is, and who asks for it.

/// Whose a stream is: the number of the key that opened it. What the number means is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Sees its own streams, and of others' not even that they exist.
    Owner(Owner),
    /// Sees every stream.
    Admin,
}

impl Caller {
    /// Whether a stream of `owner` is this caller's to see.
    pub(super) fn may_see(self, owner: Owner) -> bool {
        match self {
            Self::Owner(own) => own == owner,
            Self::Admin => true,
        }
    }
}
