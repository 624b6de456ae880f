//! The clocks of the process; the crates below `server` get the time as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds since the Unix epoch.
pub(crate) fn now_unix_s() -> i64 {
    let since = wall().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs() as i64
}

/// The wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the outermost floor reads the wall clock"
)]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// The monotonic clock: an engine's epoch and end, and measured times.
#[expect(
    clippy::disallowed_methods,
    reason = "the outermost floor reads the clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
