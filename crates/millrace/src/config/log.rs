//! Settings of the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Logging to standard error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// A `tracing` filter, such as `info` or `server=debug`; `info,requests=off` leaves out the line for each request.
    pub(crate) filter: String,
    /// One JSON object per line instead of text.
    pub(crate) json: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            json: false,
        }
    }
}
