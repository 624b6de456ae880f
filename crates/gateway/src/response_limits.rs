//! Settings of responses that are kept.

/// Bounds of stored responses (`responses.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Responses stored at one time, running ones included. The owner with the most responses loses the least
    /// recently used one; if all responses are running, a further one is rejected with 503.
    pub stored_max: usize,
    /// Bytes of stored input and output items, evicted likewise.
    pub stored_bytes: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            stored_max: 4096,
            stored_bytes: 64 << 20,
        }
    }
}
