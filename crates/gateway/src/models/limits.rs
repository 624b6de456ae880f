//! How many models may be in memory, and for how long.

use std::time::Duration;

/// Bounds of the models that are loaded on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Bytes that loaded models may have together; `None`: no bound. The least recently used model is evicted.
    pub memory_bytes: Option<u64>,
    /// How long a model that was loaded on demand stays without a request; `None`: for ever.
    pub idle: Option<Duration>,
    /// Requests that may wait for models that are being loaded.
    pub waiting_max: usize,
    /// How long one may wait.
    pub patience: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            memory_bytes: None,
            idle: Some(Duration::from_secs(300)),
            waiting_max: 256,
            patience: Duration::from_secs(600),
        }
    }
}
