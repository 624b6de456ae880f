//! The clock. Measurement is the purpose of this crate, so reading the clock is permitted here.

use std::time::{Duration, Instant};

/// The current time.
#[expect(
    clippy::disallowed_methods,
    reason = "measuring is what this crate is for"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The result of `work` and its duration.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let done = work();
    (done, now() - start)
}
