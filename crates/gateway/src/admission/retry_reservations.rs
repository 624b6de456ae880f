//! Callers who were told when to come back, and what is kept for them.
//!
//! `Retry-After` is a promise: whoever obeys it is to find a place. So each one told is written down with who
//! it was told (the same prompt of the same owner: official clients send the same bytes again, no
//! token has to be handed back) and when their time comes. Three things make it true:
//!
//! 1. **Room is kept.** As long as anybody is expected, newcomers may use three quarters of the wait
//!    queue; the last quarter is for those whose time has come.
//! 2. **Later for each.** The more are expected, the later the next one is told to come, so that they
//!    come back no faster than places become free.
//! 3. **Who does not come back does not count.** The share that does is measured, and those who are
//!    expected are taken to come back unless about as many before them did not. Otherwise the times told in a long
//!    overload would grow without end although most callers are gone for good.
//!
//! Not told true: what is more than can be served within a minute (`RETRY_AFTER_MAX`), and what is told to a crowd
//! that comes back after a larger one taught us that nobody does. Told longer than needed: where three times as many
//! ask as can be served and nobody comes back, for too many are expected to be outweighed.

use super::decay::{half_lives, kept};
use super::rejection::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Callers expected at one time, 24 bytes each; more are told a time that nothing is kept for.
pub(crate) const PROMISES_MAX: usize = 4096;
/// One of so many places of the queue is kept for them.
const KEPT_PART: usize = 4;
/// The share of the free places that they are told to come for: the rate at which places become free is not
/// known exactly.
const DRAIN_SHARE: f64 = 0.9;
/// Tolerance for early clients: timers are not exact.
const EARLY: Duration = Duration::from_millis(50);
/// Delay after which a reservation lapses. (`Retry-After` is in whole seconds.)
const LATE: Duration = Duration::from_secs(3);
/// After this long, who came back and who did not counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Fingerprint of a caller, to recognize a retry.
pub(crate) type Fingerprint = u64;

#[derive(Clone, Copy, Debug)]
struct RetryReservation {
    due: Instant,
    who: Fingerprint,
}

/// The promises that are out, soonest first.
#[derive(Debug)]
pub(crate) struct RetryReservations {
    out: VecDeque<RetryReservation>,
    /// Of those whose time came: who came, who did not; those long ago counting less.
    came: f64,
    stayed_away: f64,
    at: Instant,
}

impl RetryReservations {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            out: VecDeque::new(),
            came: 0.0,
            stayed_away: 0.0,
            at: now,
        }
    }

    /// Time went on to `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        let kept = kept(half_lives(
            now.saturating_duration_since(self.at),
            HALF_LIFE,
        ));
        (self.came, self.stayed_away) = (self.came * kept, self.stayed_away * kept);
        self.at = self.at.max(now);
        while self
            .out
            .front()
            .is_some_and(|first| first.due + LATE <= now)
        {
            self.out.pop_front();
            self.stayed_away += 1.0;
        }
    }

    /// Of so many places, those that newcomers leave alone.
    pub(crate) fn kept_of(&self, slots: usize) -> usize {
        if self.out.is_empty() {
            return 0;
        }
        slots / KEPT_PART
    }

    /// The part of a time that is kept.
    pub(crate) fn kept_of_time(&self, time: Duration) -> Duration {
        if self.out.is_empty() {
            return Duration::ZERO;
        }
        time / KEPT_PART as u32
    }

    /// Whether this one was told to come about now. It is told off: a promise is good once.
    pub(crate) fn redeem(&mut self, who: Fingerprint, now: Instant) -> bool {
        let due = self
            .out
            .partition_point(|promise| promise.due <= now + EARLY);
        let Some(at) = self.out.range(..due).position(|promise| promise.who == who) else {
            return false;
        };
        self.out.remove(at);
        self.came += 1.0;
        true
    }

    /// Tells a caller when to come back: after `backlog` at the least, and after those who are expected.
    /// `None` for the rate at which places become free: nothing was measured.
    pub(crate) fn promise(
        &mut self,
        who: Fingerprint,
        backlog: Duration,
        per_second: Option<f64>,
        now: Instant,
    ) -> Duration {
        let slots = self.expected(now);
        let queued = per_second.map_or(0.0, |rate| slots / (DRAIN_SHARE * rate));
        let queued = Duration::try_from_secs_f64(queued).unwrap_or(RETRY_AFTER_MAX);
        let wait = backlog.saturating_add(queued).max(RETRY_AFTER_MIN);
        if wait > RETRY_AFTER_MAX {
            return RETRY_AFTER_MAX;
        }
        if self.out.len() < PROMISES_MAX {
            let due = now + wait;
            let at = self.out.partition_point(|promise| promise.due <= due);
            self.out.insert(at, RetryReservation { due, who });
        }
        wait
    }

    /// How many of those whose time is still to come will come.
    fn expected(&self, now: Instant) -> f64 {
        let due = self.out.partition_point(|promise| promise.due <= now);
        let out = (self.out.len() - due) as f64;
        // A crowd may be another one than the last: it counts as if it had come, beside those before.
        let unknown = out;
        let all = self.came + self.stayed_away + unknown;
        match all > 0.0 {
            true => out * (self.came + unknown) / all,
            false => 0.0,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an instant to begin with")]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn each_is_told_to_come_after_those_before_and_is_known_again_then() {
        let now = Instant::now();
        let mut retry_reservations = RetryReservations::new(now);
        assert_eq!(retry_reservations.kept_of(64), 0, "nobody is expected");
        let told: Vec<_> = (0..90)
            .map(|who| retry_reservations.promise(who, 100 * MS, Some(10.0), now))
            .collect();
        assert_eq!(told[0], 100 * MS);
        assert!(told.is_sorted() && told[89] > 9 * S && told[89] < 11 * S);
        assert_eq!(
            (
                retry_reservations.kept_of(64),
                retry_reservations.kept_of_time(8 * S)
            ),
            (16, 2 * S)
        );
        assert!(!retry_reservations.redeem(0, now), "too early");
        assert!(retry_reservations.redeem(0, now + told[0] - EARLY));
        assert!(!retry_reservations.redeem(0, now + told[0]), "once");
        assert!(
            !retry_reservations.redeem(1000, now + 5 * S),
            "somebody else"
        );
        assert!(
            retry_reservations.redeem(89, now + told[89] + S),
            "a bit late"
        );
        retry_reservations.advance(now + told[89] + LATE + S);
        assert_eq!(
            retry_reservations.kept_of(64),
            0,
            "nobody is expected any more"
        );
    }

    #[test]
    fn who_never_comes_back_makes_nobody_wait_longer() {
        let mut now = Instant::now();
        let mut retry_reservations = RetryReservations::new(now);
        let mut told = Vec::new();
        for who in 0..4000 {
            retry_reservations.advance(now);
            told.push(retry_reservations.promise(who, 100 * MS, Some(20.0), now));
            now += 50 * MS;
        }
        let longest = told.iter().max().unwrap();
        assert!(
            *longest > 500 * MS,
            "at first they are expected: {longest:?}"
        );
        assert!(
            told[3999] < 110 * MS,
            "and then no longer: {:?}",
            told[3999]
        );
    }

    #[test]
    fn what_is_out_is_bounded() {
        let now = Instant::now();
        let mut retry_reservations = RetryReservations::new(now);
        for who in 0..3 * PROMISES_MAX as u64 {
            assert_eq!(retry_reservations.promise(who, S, None, now), S);
        }
        assert_eq!(retry_reservations.out.len(), PROMISES_MAX);
        let mut slow = RetryReservations::new(now);
        for who in 0..1000 {
            slow.promise(who, S, Some(1.0), now);
        }
        assert!(
            slow.out.len() < 60,
            "none that is further away than a minute"
        );
        assert_eq!(slow.promise(0, S, Some(1.0), now), RETRY_AFTER_MAX);
    }
}
