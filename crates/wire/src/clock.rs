//! The clock of the I/O driver: one of the two places where time is read.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, for deadlines.
#[expect(
    clippy::disallowed_methods,
    reason = "the io driver's reading of the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch, for the time stamp of a response.
#[expect(
    clippy::disallowed_methods,
    reason = "wall time is read where a response is stamped"
)]
pub fn unix_s() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

/// Microseconds since the Unix epoch.
#[expect(
    clippy::disallowed_methods,
    reason = "wall time is read where a record is stamped"
)]
pub fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

/// Wall-clock time of an instant. Both clocks are compared once per process, so one instant always has one wall-clock
/// time.
#[expect(
    clippy::disallowed_methods,
    reason = "where the two clocks are compared"
)]
pub fn wall(at: Instant) -> SystemTime {
    static COMPARED: OnceLock<(Instant, SystemTime)> = OnceLock::new();
    let &(then, wall) = COMPARED.get_or_init(|| (Instant::now(), SystemTime::now()));
    match at.checked_duration_since(then) {
        Some(later) => wall + later,
        None => wall - then.duration_since(at),
    }
}
