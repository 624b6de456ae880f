//! Rate limit of pings and pongs.
//!
//! Each ping costs a response, and control frames are not delayed by a full reply queue as commands are. Without a
//! limit a client could keep a thread busy with reading and writing.

use std::time::{Duration, Instant};

/// Control frames of one client within a window. A client that checks the connection sends one every few seconds, and
/// answers one for each ping of the server.
pub(super) const CONTROL_FRAMES_PER_S_MAX: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// Counts the control frames of a window. A window begins with the first frame after the previous window.
#[derive(Debug, Default)]
pub(super) struct ControlRate {
    since: Option<Instant>,
    frames: u32,
}

impl ControlRate {
    /// Counts one frame; false if there were too many.
    pub(super) fn count_frame(&mut self, now: Instant) -> bool {
        match self.since {
            Some(since) if now.saturating_duration_since(since) < WINDOW => self.frames += 1,
            _ => (self.since, self.frames) = (Some(now), 1),
        }
        self.frames <= CONTROL_FRAMES_PER_S_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::clock;

    #[test]
    fn control_frames_are_limited_in_each_window() {
        let epoch = clock::now();
        let at = |ms: u64| epoch + Duration::from_millis(ms);
        let mut rate = ControlRate::default();
        for start in [0, 1000, 5000] {
            for frame in 0..CONTROL_FRAMES_PER_S_MAX {
                assert!(
                    rate.count_frame(at(start + u64::from(frame))),
                    "{start} {frame}"
                );
            }
        }
        assert!(!rate.count_frame(at(5999)));
        assert!(rate.count_frame(at(6000)));
    }
}
