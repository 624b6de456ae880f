//! Settings of the scale advice in the metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{ScaleTarget, ServerConfig};
use std::time::Duration;

/// What `millrace_engines_wanted` in the metrics is computed for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scale {
    /// How far ahead demand is predicted: the time until a new engine is ready, and some.
    pub(crate) horizon_s: u64,
    /// Share of an engine's tokens per second that is planned with.
    pub(crate) utilization_percent: u32,
}

impl Default for Scale {
    fn default() -> Self {
        let target = ServerConfig::default().scale;
        Self {
            horizon_s: target.horizon.as_secs(),
            utilization_percent: target.utilization_percent,
        }
    }
}

impl Scale {
    /// As the server takes these settings.
    pub(crate) fn target(&self) -> ScaleTarget {
        ScaleTarget {
            horizon: Duration::from_secs(self.horizon_s),
            utilization_percent: self.utilization_percent,
        }
    }
}
