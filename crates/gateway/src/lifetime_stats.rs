//! Measured lifetimes of streams or connections: when one of a bounded number will end.
//!
//! The end of a stream is not known in advance; but recently ended ones had a mean lifetime, and of so many open
//! ones, one ends after the mean lifetime over their number. Before the first end, open ones are assumed to live
//! twice their age.

use std::time::{Duration, Instant};

/// `Retry-After` as long as nothing was measured.
const UNKNOWN: Duration = Duration::from_secs(1);
/// Bounds of `Retry-After`.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(60);
/// Half-life of the measurements.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Seconds lived, all together, below which nothing is known.
const KNOWN_S: f64 = 0.05;

/// Number of open streams or connections, and their lifetimes.
#[derive(Debug)]
pub struct LifetimeStats {
    open: usize,
    /// Number of ended ones; older ones count less.
    ended: f64,
    /// Time that all lived, together, likewise.
    lived_s: f64,
    at: Instant,
}

impl LifetimeStats {
    /// Statistics without a value.
    pub fn new(now: Instant) -> Self {
        Self {
            open: 0,
            ended: 0.0,
            lived_s: 0.0,
            at: now,
        }
    }

    /// How many are open.
    pub(crate) fn open_count(&self) -> usize {
        self.open
    }

    /// Opens `more`, if at most `max` are then open.
    ///
    /// # Errors
    /// The time until `more` may be opened.
    pub fn begin_lives(&mut self, more: usize, max: usize, now: Instant) -> Result<(), Duration> {
        self.advance_to(now);
        let open = self.open.saturating_add(more);
        if open > max {
            return Err(self.retry_after(open - max));
        }
        self.open = open;
        Ok(())
    }

    /// So many have ended.
    pub fn end_lives(&mut self, fewer: usize, now: Instant) {
        self.advance_to(now);
        self.open = self.open.saturating_sub(fewer);
        self.ended += fewer as f64;
    }

    fn advance_to(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let kept = (-passed / HALF_LIFE.as_secs_f64()).exp2();
        self.ended *= kept;
        self.lived_s = self.lived_s * kept + passed * self.open as f64;
        self.at = self.at.max(now);
    }

    /// Time until so many have ended.
    fn retry_after(&self, places: usize) -> Duration {
        if self.open == 0 || self.lived_s < KNOWN_S {
            return UNKNOWN;
        }
        let life = self.lived_s / self.ended.max(1.0);
        let wait = life * places as f64 / self.open as f64;
        Duration::try_from_secs_f64(wait).map_or(MOST, |wait| wait.clamp(LEAST, MOST))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an instant to begin with")]
mod tests {
    //! Promise (Admission and keys): `Retry-After` of a key's stream limit, or of the WebSocket limit, is the
    //! measured lifetime over the number of open ones.

    use super::*;

    /// Two streams; each ends after `life_s`, in turns.
    fn busy(life_s: u64, rounds: u64) -> (LifetimeStats, Instant) {
        let mut now = Instant::now();
        let mut lives = LifetimeStats::new(now);
        lives.begin_lives(2, 2, now).unwrap();
        for _ in 0..rounds {
            now += Duration::from_secs(life_s) / 2;
            lives.end_lives(1, now);
            lives.begin_lives(1, 2, now).unwrap();
        }
        (lives, now)
    }

    #[test]
    fn wait_is_the_mean_lifetime_over_open_ones() {
        for (life_s, want) in [(8, 4.0), (2, 1.0), (60, 30.0)] {
            let (mut lives, now) = busy(life_s, 40);
            let told = lives.begin_lives(1, 2, now).unwrap_err().as_secs_f64();
            assert!((told / want - 1.0).abs() < 0.25, "{life_s}: {told}, {want}");
            let both = lives.begin_lives(2, 2, now).unwrap_err().as_secs_f64();
            assert!((both / told - 2.0).abs() < 1e-6, "{both}");
            assert_eq!(lives.open_count(), 2, "who is refused opens nothing");
        }
    }

    #[test]
    fn lifetimes_without_an_end_count_twice_their_age() {
        let start = Instant::now();
        let mut lives = LifetimeStats::new(start);
        let at = |s: u64| start + Duration::from_secs(s);
        assert_eq!(
            lives.begin_lives(3, 2, start),
            Err(UNKNOWN),
            "more than there may be"
        );
        lives.begin_lives(2, 2, start).unwrap();
        assert_eq!(
            lives.begin_lives(1, 2, start),
            Err(UNKNOWN),
            "nothing is known"
        );
        let told = lives.begin_lives(1, 2, at(8)).unwrap_err().as_secs_f64();
        assert!((told - 8.0).abs() < 1e-6, "{told}");
        assert_eq!(lives.begin_lives(1, 2, at(3600)), Err(MOST));
        lives.end_lives(2, at(3600));
        assert_eq!(lives.begin_lives(2, 2, at(3600)), Ok(()));
    }

    #[test]
    fn short_lifetimes_have_the_least_wait() {
        let mut now = Instant::now();
        let mut lives = LifetimeStats::new(now);
        for _ in 0..1000 {
            lives.begin_lives(1, 1, now).unwrap();
            now += Duration::from_millis(2);
            lives.end_lives(1, now);
        }
        lives.begin_lives(1, 1, now).unwrap();
        assert_eq!(lives.begin_lives(1, 1, now), Err(LEAST));
    }
}
