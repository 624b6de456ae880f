//! Wall times of records.

use std::time::{Instant, UNIX_EPOCH};
use wire::clock;

/// Microseconds since the Unix epoch at an instant.
pub(crate) fn unix_us(at: Instant) -> u64 {
    let since = clock::wall(at).duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
