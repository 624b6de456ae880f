//! The control updates of a running stream: a count, and the last of them.

use crate::records::control_state::{ControlUpdate, TimedUpdate, UPDATES_RECORDED_MAX};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::clock;

/// A control update that a client made.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct RecordedUpdate {
    /// Milliseconds between the opening of the stream and the update.
    age_ms: u64,
    #[serde(flatten)]
    order: ControlUpdate,
}

/// The control updates of one stream.
#[derive(Debug, Default)]
pub(crate) struct ControlHistory(Mutex<UpdateLog>);

#[derive(Debug, Default)]
struct UpdateLog {
    all: u64,
    last: VecDeque<(Instant, ControlUpdate)>,
}

impl ControlHistory {
    /// Adds a control update.
    pub(crate) fn add_update(&self, order: ControlUpdate) {
        let mut kept = self.lock_log();
        kept.all += 1;
        if kept.last.len() == UPDATES_RECORDED_MAX {
            kept.last.pop_front();
        }
        kept.last.push_back((clock::now(), order));
    }

    /// Number of updates, and the last of them, for a stream opened at `opened`.
    pub(crate) fn recorded_updates(&self, opened: Instant) -> (u64, Vec<RecordedUpdate>) {
        let kept = self.lock_log();
        let told = kept.last.iter().map(|(at, order)| RecordedUpdate {
            age_ms: u64::try_from(at.saturating_duration_since(opened).as_millis())
                .unwrap_or(u64::MAX),
            order: order.clone(),
        });
        (kept.all, told.collect())
    }

    /// Number of updates, and the last of them with wall times. The wall time is `now_unix_us` at `now`.
    pub(crate) fn timed_updates(&self, now: Instant, now_unix_us: u64) -> (u64, Vec<TimedUpdate>) {
        let kept = self.lock_log();
        let timed = kept.last.iter().map(|(at, order)| {
            let age = now.saturating_duration_since(*at).as_micros();
            let age_us = u64::try_from(age).unwrap_or(u64::MAX);
            TimedUpdate {
                at_unix_us: now_unix_us.saturating_sub(age_us),
                update: order.clone(),
            }
        });
        (kept.all, timed.collect())
    }

    /// Replaces all updates by those of a record. An update whose time is not representable (before the start of the
    /// machine) has the time `now`.
    pub(crate) fn restore_updates(
        &self,
        (count, updates): (u64, Vec<TimedUpdate>),
        now: Instant,
        now_unix_us: u64,
    ) {
        let timed = updates.into_iter().map(|timed| {
            let age_us = now_unix_us.saturating_sub(timed.at_unix_us);
            let at = now.checked_sub(Duration::from_micros(age_us));
            (at.unwrap_or(now), timed.update)
        });
        let mut kept = self.lock_log();
        kept.all = count;
        kept.last = timed.collect();
        kept.last.truncate(UPDATES_RECORDED_MAX);
    }

    fn lock_log(&self) -> MutexGuard<'_, UpdateLog> {
        // No code that may panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_updates_keep_their_wall_times() {
        let (orders, now) = (ControlHistory::default(), clock::now());
        let update = |at_unix_us, after_tokens| TimedUpdate {
            at_unix_us,
            update: ControlUpdate {
                after_tokens,
                ..ControlUpdate::default()
            },
        };
        let updates = vec![update(5_000_000, 1), update(9_000_000, 2)];
        orders.restore_updates((7, updates.clone()), now, 10_000_000);
        assert_eq!(orders.timed_updates(now, 10_000_000), (7, updates));
        let later = now + Duration::from_secs(3);
        let (_, timed) = orders.timed_updates(later, 13_000_000);
        assert_eq!(timed[0].at_unix_us, 5_000_000);
    }

    #[test]
    fn last_updates_are_recorded_and_all_are_counted() {
        let (orders, opened) = (ControlHistory::default(), clock::now());
        for after_tokens in 0..100 {
            orders.add_update(ControlUpdate {
                after_tokens,
                stop: after_tokens == 99,
                ..ControlUpdate::default()
            });
        }
        let (all, last) = orders.recorded_updates(opened);
        assert_eq!((all, last.len()), (100, UPDATES_RECORDED_MAX));
        assert_eq!(last[0].order.after_tokens, 36);
        let json = serde_json::to_value(&last[63].order).expect("JSON");
        assert_eq!(json, serde_json::json!({"after_tokens": 99, "stop": true}));
    }
}
