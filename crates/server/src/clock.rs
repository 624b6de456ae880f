//! The io driver's clock: one of the two places where time is read.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, for deadlines.
#[expect(
    clippy::disallowed_methods,
    reason = "the io driver's reading of the clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch, for the time stamp of an answer.
#[expect(
    clippy::disallowed_methods,
    reason = "wall time is read where a response is stamped"
)]
pub(crate) fn unix_s() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}
