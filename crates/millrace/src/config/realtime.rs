//! Settings of WebSockets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::RealtimeLimits;

/// How many WebSockets, and how much each may do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Realtime {
    /// WebSockets open at one time; more are answered 503.
    pub(crate) connections_max: usize,
    /// Streams one of them may follow at one time.
    pub(crate) streams_max: usize,
    /// Bytes a client's message may have.
    pub(crate) message_bytes_max: usize,
    /// A client nothing comes from for this long, not even the answer to a ping, is gone.
    pub(crate) idle_ms: u64,
}

impl Default for Realtime {
    fn default() -> Self {
        let limits = RealtimeLimits::default();
        Self {
            connections_max: limits.connections_max,
            streams_max: limits.streams_max,
            message_bytes_max: limits.message_bytes_max,
            idle_ms: limits.idle.as_millis() as u64,
        }
    }
}
