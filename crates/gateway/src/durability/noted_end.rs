//! What a stream's records note of its end: a later process delivers each end that was not delivered, and does not list an
//! end as unread that was read.

use serde::{Deserialize, Serialize};

/// Notes on an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NotedEnd {
    /// The delivery of the webhook was recorded.
    pub(crate) webhook: bool,
    /// A reader has the end, or a client has acknowledged it.
    pub(crate) read: bool,
}
