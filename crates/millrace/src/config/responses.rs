//! Settings of stored responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::ResponseLimits;

/// Stored responses (`/v1/responses`), which can be fetched and continued, and chat completions with `store: true`. They
/// survive a restart if there is a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Responses {
    /// Maximum number of stored responses and chat completions; beyond it the least recently used one of the owner with
    /// the most is evicted.
    pub(crate) stored_max: usize,
    /// Maximum bytes of stored responses and chat completions; evicted likewise.
    pub(crate) stored_bytes: usize,
}

impl Default for Responses {
    fn default() -> Self {
        let limits = ResponseLimits::default();
        Self {
            stored_max: limits.stored_max,
            stored_bytes: limits.stored_bytes,
        }
    }
}
