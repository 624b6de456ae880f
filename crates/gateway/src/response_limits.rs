//! What the operator chose about responses that are kept.

/// Bounds of stored responses (`responses.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Responses kept at one time, those that are being made included. The one of its owner that was used
    /// longest ago makes room, of the owner that keeps most; where all are being made, one more is told 503.
    pub stored_max: usize,
    /// Bytes of questions and answers they may hold, likewise.
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
