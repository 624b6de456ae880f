//! Devices that fail: the loss of all keys and values, and the limit of attempts to open a device again.
//!
//! After [`model::ForwardError::Device`] all pages and states are without content. The engine takes the pages of all
//! sequences as in a preemption, empties the prefix cache, and lets the model open the device again
//! ([`model::Forward::recover`]). The sequences then compute their tokens again and continue: no token is appended twice,
//! and none is lost. Where the device cannot be opened, or fails too often, started requests end with
//! [`stream::FailCode::Device`].

use std::time::{Duration, Instant};

/// Times that a device is opened again within [`RECOVERY_TIME`]: one that fails more often is broken.
const RECOVERIES_MAX: usize = 2;

/// See [`RECOVERIES_MAX`].
const RECOVERY_TIME: Duration = Duration::from_mins(10);

/// The last times at which the device was opened again.
#[derive(Default)]
pub(crate) struct Recoveries {
    /// Oldest first.
    last: [Option<Instant>; RECOVERIES_MAX],
}

impl Recoveries {
    /// Whether the device may be opened again now; counts the attempt.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let oldest = self.last[0];
        let is_recent =
            oldest.is_some_and(|then| now.saturating_duration_since(then) < RECOVERY_TIME);
        if !is_recent {
            self.last.rotate_left(1);
            self.last[RECOVERIES_MAX - 1] = Some(now);
        }
        !is_recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an epoch for virtual time")]
    fn device_is_opened_twice_in_ten_minutes() {
        let start = Instant::now();
        let mut recoveries = Recoveries::default();
        // (minutes, whether the device may be opened)
        let rows = [
            (0, true),
            (3, true),
            (4, false),
            (9, false),
            (10, true),
            (12, false),
            (13, true),
        ];
        for (minutes, is_allowed) in rows {
            let now = start + Duration::from_mins(minutes);
            assert_eq!(recoveries.take(now), is_allowed, "minute {minutes}");
        }
    }
}
