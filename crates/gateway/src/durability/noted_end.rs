//! Which reports of a stream's end are in the journal: with the stream's records, so that a later process reports each
//! end that was not reported.

use serde::{Deserialize, Serialize};

/// Reports of an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NotedEnd {
    /// The delivery of the webhook was recorded.
    pub(crate) webhook: bool,
    /// The event was put into the mailbox, or a reader has the end.
    pub(crate) mailbox: bool,
}
