//! State changes of a stream, as subscribers and the stream feed see them.

/// A state change of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The stream was registered.
    Opened,
    /// The stream of an earlier process was registered again.
    Recovered,
    /// The stream of another gateway, which is gone, was registered here.
    Claimed,
    /// A request of the stream runs on another engine than before. Never the current state of a stream.
    Moved,
    /// Prefill of the first prompt began.
    Started,
    /// The credit window is used up.
    Backpressure,
    /// The stream has waited for credit for long.
    SlowConsumer,
    /// The stream is parked for another reason.
    Parked {
        /// `paused`, `detached`, `place` or `pages`.
        reason: &'static str,
    },
    /// The stream continues.
    Resumed,
    /// Every choice has ended, or the stream was never started.
    Ended {
        /// The end's name in the API; `refused` if the stream was never started.
        how: &'static str,
        /// The clock that fired, the code of the failure, or the error code of the rejection.
        detail: Option<&'static str>,
    },
}
