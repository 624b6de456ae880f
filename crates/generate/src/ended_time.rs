//! The wall time at which a stream ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// When a stream ended: one time for all readers. Where the stream is recorded, the recorded one, so that an ended
/// stream reads alike after a restart; else the time at which this process first asked.
#[derive(Debug, Default)]
pub struct EndedTime {
    /// Microseconds since the Unix epoch; 0 = not known yet.
    unix_us: AtomicU64,
}

impl EndedTime {
    /// Records the end of a choice, in microseconds since the Unix epoch. The last of all choices counts.
    pub fn record(&self, unix_us: u64) {
        self.unix_us.fetch_max(unix_us, Ordering::AcqRel);
    }

    /// The recorded time, or else `now`, which becomes the recorded one. In microseconds since the Unix epoch.
    pub fn recorded_or(&self, now_unix_us: u64) -> u64 {
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.unix_us.compare_exchange(0, now_unix_us, order, failed);
        before.map_or_else(|recorded| recorded, |_| now_unix_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_question_decides_where_nothing_is_recorded() {
        let ended = EndedTime::default();
        assert_eq!((ended.recorded_or(5), ended.recorded_or(9)), (5, 5));
    }

    #[test]
    fn last_recorded_choice_counts() {
        let ended = EndedTime::default();
        ended.record(7);
        ended.record(3);
        assert_eq!(ended.recorded_or(9), 7);
    }
}
