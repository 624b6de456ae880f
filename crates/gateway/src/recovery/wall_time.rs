//! Instants of this process from recorded wall times, and the other way round.
//!
//! Durations that pass while no process runs count: a deadline, a retention and a total timeout go on. The wall clock may
//! be set back or forward meanwhile, so no conversion may underflow.

use std::time::{Duration, Instant};
use wire::clock;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallTime {
    now: Instant,
    now_unix_us: u64,
}

impl WallTime {
    /// The two clocks show these times at one moment.
    pub(crate) fn new(now: Instant, now_unix_us: u64) -> Self {
        Self { now, now_unix_us }
    }

    /// This moment.
    pub(crate) fn now() -> Self {
        Self::new(clock::now(), clock::unix_us())
    }

    /// Wall time of this moment.
    pub(crate) fn now_unix_us(self) -> u64 {
        self.now_unix_us
    }

    /// The instant of a wall time; `now` for one that this machine's clock cannot represent.
    pub(crate) fn instant(self, unix_us: u64) -> Instant {
        let instant = match unix_us.checked_sub(self.now_unix_us) {
            Some(ahead_us) => self.now.checked_add(Duration::from_micros(ahead_us)),
            None => {
                let past_us = self.now_unix_us - unix_us;
                self.now.checked_sub(Duration::from_micros(past_us))
            }
        };
        instant.unwrap_or(self.now)
    }

    /// The instant of a moment in the past: not after `now`, whatever the wall clock did.
    pub(crate) fn past_instant(self, unix_us: u64) -> Instant {
        self.instant(unix_us).min(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_become_instants_without_underflow() {
        let now = wire::clock::now();
        let wall = WallTime::new(now, 5_000_000);
        let second = Duration::from_secs(1);
        assert_eq!(wall.instant(5_000_000), now);
        assert_eq!(wall.instant(6_000_000), now + second);
        assert_eq!(now - wall.instant(4_000_000), second);
        assert_eq!(wall.past_instant(6_000_000), now, "the clock was set back");
        for extreme in [0, u64::MAX] {
            let _ = wall.instant(extreme);
            assert!(wall.past_instant(extreme) <= now);
        }
        let early = WallTime::new(now, u64::MAX);
        assert!(early.instant(0) <= now);
    }
}
