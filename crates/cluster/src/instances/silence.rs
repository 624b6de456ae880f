//! Time without a heartbeat.
//!
//! An instance is not to blame for time in which its heartbeats could not arrive: while this process has no connection,
//! shortly after a new one (the others connect again, too), or while this process was stopped.

use std::time::{Duration, Instant};

/// Heartbeats that may be missed before an instance is suspected.
const SUSPECTED: u32 = 3;
/// Heartbeats that may be missed before an instance is gone.
const GONE: u32 = 12;
/// Heartbeats after which an instance that is gone is forgotten.
const FORGOTTEN: u32 = 240;
/// Heartbeats that one look counts at most: a longer time between two looks is a pause of this process.
const LOOK_MAX: u32 = 2;
/// Time after a new connection in which silence is not counted: other instances wait that long between two attempts.
const GRACE: Duration = Duration::from_millis(2500);

/// Counts the time in which heartbeats could arrive.
#[derive(Debug)]
pub(super) struct ListeningClock {
    heartbeat: Duration,
    last_look: Instant,
    /// Since when heartbeats can arrive.
    listening_since: Option<Instant>,
    /// Time that was counted since then.
    listened: Duration,
}

/// How long an instance was silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Silence(Duration);

/// Meaning of a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Alive,
    Suspected,
    Gone,
    Forgotten,
}

impl ListeningClock {
    pub(super) fn new(heartbeat: Duration, now: Instant) -> Self {
        Self {
            heartbeat,
            last_look: now,
            listening_since: None,
            listened: Duration::ZERO,
        }
    }

    /// The time to be counted since the last look.
    pub(super) fn look(&mut self, is_connected: bool, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.last_look);
        self.last_look = self.last_look.max(now);
        if !is_connected {
            (self.listening_since, self.listened) = (None, Duration::ZERO);
            return Duration::ZERO;
        }
        let since = *self.listening_since.get_or_insert(now);
        if now.saturating_duration_since(since) < GRACE {
            return Duration::ZERO;
        }
        let time = elapsed.min(self.heartbeat * LOOK_MAX);
        self.listened += time;
        time
    }

    /// Whether an instance that lives would have been heard by now.
    pub(super) fn has_heard_all(&self) -> bool {
        self.listened >= self.heartbeat * GONE
    }

    /// Meaning of a silence.
    pub(super) fn judge(&self, silence: Silence) -> Verdict {
        match silence.0 {
            time if time >= self.heartbeat * FORGOTTEN => Verdict::Forgotten,
            time if time >= self.heartbeat * GONE => Verdict::Gone,
            time if time >= self.heartbeat * SUSPECTED => Verdict::Suspected,
            _ => Verdict::Alive,
        }
    }
}

impl Silence {
    pub(super) fn add(&mut self, time: Duration) {
        self.0 = self.0.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(250);

    /// The time that looks each `step` count, from a connection at 0 until `end`.
    fn counted(
        clock: &mut ListeningClock,
        start: Instant,
        step: Duration,
        end: Duration,
    ) -> Duration {
        let mut silence = Silence::default();
        let mut at = Duration::ZERO;
        while at <= end {
            silence.add(clock.look(true, start + at));
            at += step;
        }
        silence.0
    }

    #[test]
    fn time_counts_after_the_grace() {
        let start = tokio::time::Instant::now().into_std();
        let mut clock = ListeningClock::new(BEAT, start);
        let step = Duration::from_millis(50);
        let end = GRACE + Duration::from_secs(1);
        let time = counted(&mut clock, start, step, end);
        assert_eq!(time, Duration::from_secs(1) + step);
        assert!(!clock.has_heard_all());
        let end = GRACE + BEAT * GONE;
        let mut at = GRACE + Duration::from_secs(1) + step;
        while at <= end {
            clock.look(true, start + at);
            at += step;
        }
        assert!(clock.has_heard_all());
        clock.look(false, start + end);
        assert!(!clock.has_heard_all(), "after a lost connection");
    }

    #[test]
    fn pauses_and_lost_connections_do_not_count() {
        let start = tokio::time::Instant::now().into_std();
        let mut clock = ListeningClock::new(BEAT, start);
        assert_eq!(clock.look(true, start), Duration::ZERO);
        let hour = start + Duration::from_secs(3600);
        assert_eq!(
            clock.look(true, hour),
            BEAT * LOOK_MAX,
            "stopped for an hour"
        );
        assert_eq!(clock.look(false, hour + BEAT), Duration::ZERO);
        assert_eq!(clock.look(true, hour + BEAT * 2), Duration::ZERO, "grace");
        let later = hour + BEAT * 2 + GRACE;
        assert!(clock.look(true, later) > Duration::ZERO);
        assert_eq!(clock.look(true, start), Duration::ZERO, "time went back");
    }

    #[test]
    fn silence_is_judged_in_heartbeats() {
        let start = tokio::time::Instant::now().into_std();
        let clock = ListeningClock::new(BEAT, start);
        let judge = |beats: u32| {
            let just_before = BEAT * beats - Duration::from_nanos(1);
            let judge = |time| clock.judge(Silence(time));
            (judge(just_before), judge(BEAT * beats))
        };
        assert_eq!(judge(SUSPECTED), (Verdict::Alive, Verdict::Suspected));
        assert_eq!(judge(GONE), (Verdict::Suspected, Verdict::Gone));
        assert_eq!(judge(FORGOTTEN), (Verdict::Gone, Verdict::Forgotten));
    }
}
