//! Why a reader cannot attach.

/// The requested index does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// Beyond the visible items.
    Ahead {
        /// Visible items.
        len: u64,
    },
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Ahead { len } = self;
        write!(f, "index is beyond the {len} items written so far")
    }
}

impl std::error::Error for AttachError {}
