//! Capacity reserved for callers that were rejected with a `Retry-After`.
//!
//! A caller that obeys `Retry-After` is to find a slot. So each `Retry-After` is recorded with its due time and a
//! fingerprint of the caller (the same prompt of the same owner: official clients send the same bytes again, and no
//! token has to be handed back). Three rules make `Retry-After` true:
//!
//! 1. **Capacity is reserved.** While callers are expected, new requests may use three quarters of the wait queue;
//!    the last quarter is for callers whose time has come.
//! 2. **Later for each.** The more callers are expected, the later the next due time, so that callers return no
//!    faster than slots become free.
//! 3. **Callers that stay away do not count.** The fraction that returns is measured, and expected callers count as
//!    returning unless about as many before them did not. Otherwise the due times in a long overload would grow
//!    without end although most callers are gone for good.
//!
//! `Retry-After` is too short for more callers than the server can serve within a minute (`RETRY_AFTER_MAX`), and for
//! a crowd that returns after a larger crowd did not. `Retry-After` is too long while three times as many callers
//! arrive as the server can serve and none returns.

use super::recent_samples::{half_lives, remaining_part};
use super::rejection::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Callers expected at one time, 24 bytes each; beyond this number a `Retry-After` has no reservation.
pub(crate) const PROMISES_MAX: usize = 4096;
/// This part of the queue is reserved for returning callers.
const KEPT_PART: usize = 4;
/// Part of the measured rate of free slots that is reserved: the rate is not known exactly.
const DRAIN_SHARE: f64 = 0.9;
/// Tolerance for early clients: timers are not exact.
const EARLY: Duration = Duration::from_millis(50);
/// Delay after which a reservation lapses. (`Retry-After` is in whole seconds.)
const LATE: Duration = Duration::from_secs(3);
/// Half-life of the counts of returned and missing callers.
const HALF_LIFE: Duration = Duration::from_secs(3);

/// Fingerprint of a caller, to recognize a retry.
pub type Fingerprint = u64;

#[derive(Clone, Copy, Debug)]
struct RetryReservation {
    due: Instant,
    who: Fingerprint,
}

/// The promises that are out, soonest first.
#[derive(Debug)]
pub(crate) struct RetryReservations {
    out: VecDeque<RetryReservation>,
    /// Numbers of callers that returned when their reservation began and of those that did not; older ones count less.
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
    pub(crate) fn advance_to(&mut self, now: Instant) {
        let kept = remaining_part(half_lives(
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

    /// Reserved positions out of `slots`.
    pub(crate) fn reserved_of(&self, slots: usize) -> usize {
        if self.out.is_empty() {
            return 0;
        }
        slots / KEPT_PART
    }

    /// The part of a time that is kept.
    pub(crate) fn reserved_time(&self, time: Duration) -> Duration {
        if self.out.is_empty() {
            return Duration::ZERO;
        }
        time / KEPT_PART as u32
    }

    /// Whether a caller was expected about now. Removes the reservation.
    pub(crate) fn redeem_reservation(&mut self, who: Fingerprint, now: Instant) -> bool {
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

    /// A due time for a caller: after `backlog` at the least, and after all expected callers. `per_second` is the
    /// rate at which slots become free; `None`: nothing was measured.
    pub(crate) fn add_reservation(
        &mut self,
        who: Fingerprint,
        backlog: Duration,
        per_second: Option<f64>,
        now: Instant,
    ) -> Duration {
        let slots = self.expected_callers(now);
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

    /// Expected number of returning callers among the reservations.
    fn expected_callers(&self, now: Instant) -> f64 {
        let due = self.out.partition_point(|promise| promise.due <= now);
        let out = (self.out.len() - due) as f64;
        // A new crowd may behave otherwise than the last: count the callers as returned, beside earlier ones.
        let unknown = out;
        let all = self.came + self.stayed_away + unknown;
        if all > 0.0 {
            out * (self.came + unknown) / all
        } else {
            0.0
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
    fn reservations_are_in_order_and_redeemed_once() {
        let now = Instant::now();
        let mut retry_reservations = RetryReservations::new(now);
        assert_eq!(retry_reservations.reserved_of(64), 0, "nobody is expected");
        let told: Vec<_> = (0..90)
            .map(|who| retry_reservations.add_reservation(who, 100 * MS, Some(10.0), now))
            .collect();
        assert_eq!(told[0], 100 * MS);
        assert!(told.is_sorted() && told[89] > 9 * S && told[89] < 11 * S);
        assert_eq!(
            (
                retry_reservations.reserved_of(64),
                retry_reservations.reserved_time(8 * S)
            ),
            (16, 2 * S)
        );
        assert!(!retry_reservations.redeem_reservation(0, now), "too early");
        assert!(retry_reservations.redeem_reservation(0, now + told[0] - EARLY));
        assert!(
            !retry_reservations.redeem_reservation(0, now + told[0]),
            "once"
        );
        assert!(
            !retry_reservations.redeem_reservation(1000, now + 5 * S),
            "somebody else"
        );
        assert!(
            retry_reservations.redeem_reservation(89, now + told[89] + S),
            "a bit late"
        );
        retry_reservations.advance_to(now + told[89] + LATE + S);
        assert_eq!(
            retry_reservations.reserved_of(64),
            0,
            "nobody is expected any more"
        );
    }

    #[test]
    fn missing_callers_do_not_lengthen_retry_after() {
        let mut now = Instant::now();
        let mut retry_reservations = RetryReservations::new(now);
        let mut told = Vec::new();
        for who in 0..4000 {
            retry_reservations.advance_to(now);
            told.push(retry_reservations.add_reservation(who, 100 * MS, Some(20.0), now));
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
    fn reservations_are_bounded() {
        let now = Instant::now();
        let mut retry_reservations = RetryReservations::new(now);
        for who in 0..3 * PROMISES_MAX as u64 {
            assert_eq!(retry_reservations.add_reservation(who, S, None, now), S);
        }
        assert_eq!(retry_reservations.out.len(), PROMISES_MAX);
        let mut slow = RetryReservations::new(now);
        for who in 0..1000 {
            slow.add_reservation(who, S, Some(1.0), now);
        }
        assert!(
            slow.out.len() < 60,
            "none that is further away than a minute"
        );
        assert_eq!(slow.add_reservation(0, S, Some(1.0), now), RETRY_AFTER_MAX);
    }
}
