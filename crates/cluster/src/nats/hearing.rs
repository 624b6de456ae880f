//! Whether this process hears its own heartbeats, which go through NATS and back.
//!
//! A gateway that was stopped, or that NATS did not reach, for several heartbeats may have been taken for dead, and its
//! streams been taken over. What NATS has held back arrives first when the gateway is back: told to clients, it would be the
//! text of a second owner. So tokens are dropped, and read again later, until JetStream has said who owns the streams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Own heartbeats that may be missing. Others take an instance for dead after more, and not at all if this is a pause of
/// theirs.
const SILENT: u32 = 8;
/// Longest time for the answer of JetStream. Without one, streams go on: another gateway could not have claimed them either
/// if JetStream had been away before.
const HELD_MAX: Duration = Duration::from_secs(10);

/// Times of own heartbeats, in milliseconds since [`Hearing::new`].
#[derive(Debug)]
pub struct Hearing {
    start: Instant,
    /// Time without an own heartbeat that counts as silence; 0: no heartbeats are sent.
    silence_ms: AtomicU64,
    heard_ms: AtomicU64,
    /// How many silences have ended.
    returns: AtomicU64,
    returned_ms: AtomicU64,
    /// The return after which all owners were read.
    confirmed: AtomicU64,
    /// Whether anybody confirms returns.
    has_records: AtomicBool,
    back: Notify,
}

impl Hearing {
    /// No heartbeats are sent yet.
    pub fn new(now: Instant) -> Self {
        Self {
            start: now,
            silence_ms: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            returned_ms: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            has_records: AtomicBool::new(false),
            back: Notify::new(),
        }
    }

    fn since_start(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_millis() as u64
    }

    /// From now on an own heartbeat is sent each `heartbeat`.
    pub fn begin(&self, heartbeat: Duration, now: Instant) {
        self.heard_ms.store(self.since_start(now), SeqCst);
        let silence = (heartbeat * SILENT).as_millis() as u64;
        self.silence_ms.store(silence.max(1), SeqCst);
    }

    /// Somebody calls [`confirm`](Self::confirm).
    pub fn expect_confirmations(&self) {
        self.has_records.store(true, SeqCst);
    }

    /// An own heartbeat came back.
    pub fn note_heartbeat(&self, now: Instant) {
        if self.is_silent(now) {
            self.returned_ms.store(self.since_start(now), SeqCst);
            // Before the time below, which ends the silence.
            self.returns.fetch_add(1, SeqCst);
        }
        self.heard_ms.store(self.since_start(now), SeqCst);
        if self.returns() != self.confirmed.load(SeqCst) {
            self.back.notify_one();
        }
    }

    fn is_silent(&self, now: Instant) -> bool {
        let silence = self.silence_ms.load(SeqCst);
        let heard = self.heard_ms.load(SeqCst);
        silence != 0 && self.since_start(now).saturating_sub(heard) >= silence
    }

    /// How many silences have ended.
    pub fn returns(&self) -> u64 {
        self.returns.load(SeqCst)
    }

    /// The owners of all streams were read after this return.
    pub fn confirm(&self, returns: u64) {
        self.confirmed.fetch_max(returns, SeqCst);
    }

    /// Ready after a return that is not confirmed.
    pub async fn wait_return(&self) {
        self.back.notified().await;
    }

    /// Whether tokens of other processes are to be dropped: this process is deaf, or was, and does not know yet whether
    /// the streams are still its own.
    pub fn is_held(&self, now: Instant) -> bool {
        if !self.has_records.load(SeqCst) {
            return false;
        }
        let is_unsure = || {
            let since = self
                .since_start(now)
                .saturating_sub(self.returned_ms.load(SeqCst));
            self.confirmed.load(SeqCst) < self.returns() && u128::from(since) < HELD_MAX.as_millis()
        };
        self.is_silent(now) || is_unsure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(250);

    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    fn started() -> (Hearing, Instant) {
        let now = Instant::now();
        let hearing = Hearing::new(now);
        hearing.expect_confirmations();
        hearing.begin(BEAT, now);
        (hearing, now)
    }

    #[test]
    fn tokens_are_held_from_the_silence_until_the_owners_are_known() {
        let (hearing, start) = started();
        let before = start + BEAT * (SILENT - 1);
        hearing.note_heartbeat(before);
        assert!(!hearing.is_held(before));
        let back = before + BEAT * SILENT;
        assert!(hearing.is_held(back), "deaf");
        hearing.note_heartbeat(back);
        assert!(hearing.is_held(back), "not confirmed");
        hearing.confirm(0);
        assert!(hearing.is_held(back), "of an earlier return");
        hearing.confirm(hearing.returns());
        assert!(!hearing.is_held(back));
    }

    #[test]
    fn hold_without_an_answer_ends() {
        let (hearing, start) = started();
        let back = start + BEAT * SILENT;
        let heard = |until: Duration| {
            let mut at = back;
            while at < back + until {
                hearing.note_heartbeat(at);
                at += BEAT;
            }
        };
        heard(HELD_MAX);
        assert!(hearing.is_held(back + HELD_MAX - BEAT));
        assert!(!hearing.is_held(back + HELD_MAX));
        assert_eq!(hearing.returns(), 1);
    }

    #[test]
    fn nothing_is_held_where_nobody_confirms() {
        #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
        let start = Instant::now();
        let hearing = Hearing::new(start);
        hearing.begin(BEAT, start);
        assert!(!hearing.is_held(start + BEAT * 100));
    }
}
