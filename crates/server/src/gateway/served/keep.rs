//! How long a model stays when nobody asks it.

use std::time::{Duration, Instant};

/// How long a model stays without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// So long.
    For(Duration),
    /// As long as there is room.
    ForEver,
}

impl Keep {
    /// When it is over for a model that nobody asked since `last`.
    pub(crate) fn until(self, last: Instant) -> Option<Instant> {
        match self {
            Self::For(time) => last.checked_add(time),
            Self::ForEver => None,
        }
    }
}

impl From<Option<Duration>> for Keep {
    fn from(idle: Option<Duration>) -> Self {
        idle.map_or(Self::ForEver, Self::For)
    }
}
