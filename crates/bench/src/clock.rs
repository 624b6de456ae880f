//! Reading the clock, which is what this crate is for.

use std::time::{Duration, Instant};

/// Now.
#[expect(
    clippy::disallowed_methods,
    reason = "measuring is what this crate is for"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// What `work` gives, and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let done = work();
    (done, now() - start)
}
