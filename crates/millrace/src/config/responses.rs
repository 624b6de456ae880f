//! Settings of stored responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::ResponseLimits;

/// Responses (`/v1/responses`) that are kept to be shown and gone on from. They are in memory: a restart
/// forgets them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Responses {
    /// Responses kept at one time; of the owner that keeps most, the one used longest ago makes room.
    pub(crate) stored_max: usize,
    /// Bytes of questions and answers they may hold, likewise.
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
