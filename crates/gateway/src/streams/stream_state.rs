//! State of a stream, as the API names the states.

/// Where a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Waits for a permit or for a slot in the batch.
    Queued,
    /// The prompt is being computed.
    Prefilling,
    /// Generating.
    Running,
    /// Waiting for credit or for pages.
    Parked,
    /// Paused by request.
    Paused,
    /// Every choice has ended.
    Ended,
}

impl StreamState {
    /// Name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Prefilling => "prefilling",
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}
