//! Where a stream is, as the API tells it.

/// Where a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Waits for a permit or for its place in the batch.
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
    /// How the API spells it.
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
