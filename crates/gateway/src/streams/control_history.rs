//! The control updates of a running stream: a count, and the last of them.

use engine::RequestUpdate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::clock;

/// Updates of a stream that are kept: the last ones.
pub(crate) const UPDATES_RECORDED_MAX: usize = 64;

/// The fields of a control update. Fields that the client did not set are absent.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ControlUpdate {
    /// Generated tokens of all choices at the time of the update. The update takes effect at a later token.
    pub(crate) after_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pause: Option<bool>,
    #[serde(skip_serializing_if = "is_not")]
    pub(crate) stop: bool,
    #[serde(skip_serializing_if = "is_not")]
    pub(crate) end_thinking: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repetition_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) frequency_penalty: Option<f32>,
    /// Number of injected tokens. Injected tokens are part of the output.
    #[serde(skip_serializing_if = "is_none")]
    pub(crate) injected: usize,
}

impl ControlUpdate {
    /// The update that the engine received.
    pub(crate) fn new(steer: &RequestUpdate) -> Self {
        Self {
            temperature: steer.temperature,
            top_k: steer.top_k,
            top_p: steer.top_p,
            min_p: steer.min_p,
            repetition_penalty: steer.repetition_penalty,
            presence_penalty: steer.presence_penalty,
            frequency_penalty: steer.frequency_penalty,
            injected: steer.inject.len(),
            ..Self::default()
        }
    }
}

/// A control update that a client made.
#[derive(Clone, Debug, JsonSchema, PartialEq, Serialize)]
pub(crate) struct RecordedUpdate {
    /// Milliseconds between the opening of the stream and the update.
    age_ms: u64,
    #[serde(flatten)]
    order: ControlUpdate,
}

/// A control update with its wall time, for records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TimedUpdate {
    /// Wall time of the update.
    pub(crate) at_unix_us: u64,
    /// The update.
    pub(crate) update: ControlUpdate,
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_not(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(count: &usize) -> bool {
    *count == 0
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
