//! The clock of the I/O driver: one of the two places where time is read.

use crate::schema::written_as;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, for deadlines.
#[expect(
    clippy::disallowed_methods,
    reason = "the io driver's reading of the clock"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Time that a processor has spent on the calling thread, for bounds of work which do not depend on what else runs.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn thread_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

/// Time since the first call: this system does not tell that of a thread.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn thread_time() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    now().saturating_duration_since(*BEGIN.get_or_init(now))
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

const DAY_S: u64 = 24 * 60 * 60;

/// In UTC, to the millisecond: `2026-01-31T23:59:59.999Z`. Times before 1970 are written as 1970.
pub fn utc_millis(time: SystemTime) -> String {
    Utc { time, digits: 3 }.to_string()
}

/// A time in UTC to the nanosecond; serialization allocates nothing.
#[derive(Clone, Copy)]
pub struct Nanos(pub SystemTime);

written_as!(Nanos => String);

impl Serialize for Nanos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (time, digits) = (self.0, 9);
        serializer.collect_str(&Utc { time, digits })
    }
}

/// A time in UTC with so many digits of the second's fraction, 9 at most.
struct Utc {
    time: SystemTime,
    digits: u32,
}

impl Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, second) = (since.as_secs() / DAY_S, since.as_secs() % DAY_S);
        let (year, month, day) = civil_date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}."
        )?;
        let fraction = since.subsec_nanos() / 10_u32.pow(9 - self.digits);
        write!(f, "{fraction:0digits$}Z", digits = self.digits as usize)
    }
}

/// Year, month and day of a day since 1970. Days are counted from 0000-03-01 in eras of 400 years, so that the leap
/// day is the last day of a year (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil_date(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const ERA_DAYS: u64 = 146_097;
    let days = days_since_1970 + DAYS_TO_1970;
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_stamp_has_rfc3339_format() {
        // Seconds as printed by `date -u -d ... +%s`.
        let rows = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800_007, "2024-02-29T00:00:00.007Z"),
            (1_767_225_599_000, "2025-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ms, want) in rows {
            assert_eq!(
                utc_millis(UNIX_EPOCH + Duration::from_millis(ms)),
                want,
                "{ms}"
            );
        }
        assert_eq!(utc_millis(UNIX_EPOCH - Duration::from_secs(1)), rows[0].1);
        for (ms, want) in rows {
            let time = UNIX_EPOCH + Duration::from_millis(ms) + Duration::from_nanos(7);
            let want = want.replace('Z', "000007Z");
            assert_eq!(serde_json::to_value(Nanos(time)).unwrap(), want, "{ms}");
        }
    }
}
