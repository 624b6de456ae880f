//! (Stub.)

use crate::Stats;
use model::Dims;
use std::time::Instant;

/// What the engine thread and the handles share.
pub(crate) struct Inbox {
    pub(crate) stats: Stats,
    pub(crate) dims: Dims,
    pub(crate) epoch: Instant,
}
