//! Settings of WebSockets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::RealtimeLimits;

/// WebSockets and their limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Realtime {
    /// Maximum number of open WebSockets; more are rejected with 503.
    pub(crate) connections_max: usize,
    /// Maximum size of a client's WebSocket message in bytes.
    pub(crate) message_bytes_max: usize,
}

impl Default for Realtime {
    fn default() -> Self {
        let limits = RealtimeLimits::default();
        Self {
            connections_max: limits.connections_max,
            message_bytes_max: limits.message_bytes_max,
        }
    }
}
