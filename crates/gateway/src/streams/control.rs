//! Control of running streams: stop, pause and control updates, passed to the engine that computes the stream.

use super::stream_record::{StreamRecord, StreamStage};
use crate::locks::lock;
use crate::records::ControlState;
use crate::records::control_state::{ControlUpdate, TimedUpdate, UPDATES_RECORDED_MAX};
use engine::{Handle, Phase, RequestId, RequestUpdate, UpdateRejected};
use generate::error::{ApiError, ErrorKind};
use generate::stream_source::Submitted;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use text::Tokenizer;
use wire::clock;
use wire::control_request::ControlRequest;

/// Applies a control update to a stream. Injected tokens come after the end of reasoning, where both are requested; a
/// stop is last.
///
/// # Errors
/// The stream does not run, or cannot be updated so.
pub fn apply_control(mut update: ControlRequest, record: &StreamRecord) -> Result<(), ApiError> {
    let started = record.started().filter(|_| !record.is_over());
    let started = started.ok_or_else(not_running)?;
    if let Some(text) = &update.text {
        update.changes.inject = encoded_text(&started.tokenizer, text)?;
    }
    if update.end_thinking {
        let marks = started.choices.iter().find_map(|log| log.reading.marks());
        let marks = marks.ok_or_else(|| {
            let words = "end_thinking: this model has no token that ends its thinking";
            ApiError::field("end_thinking", "invalid_value", words)
        })?;
        update.changes.inject.insert(0, marks.close);
    }
    let made = started.choices.iter().map(|log| log.tokens.len());
    let order = ControlUpdate {
        after_tokens: made.sum(),
        pause: update.pause,
        stop: update.stop,
        end_thinking: update.end_thinking,
        ..ControlUpdate::new(&update.changes)
    };
    let mut steering = record.steering().lock();
    if update.changes != RequestUpdate::default() {
        let accept = |_| {
            let next = steering.accept(&update.changes, record.updates_applied());
            next.ok_or_else(too_many_updates)
        };
        let next = record.durable().map(accept).transpose()?;
        update_request(&update.changes, record)?;
        if let Some(next) = next {
            *steering = next;
        }
    }
    record.control_history.add_update(order);
    record.record_control(&steering);
    drop(steering);
    if let Some(paused) = update.pause {
        record.pause(paused);
    }
    if update.stop {
        record.cancel();
    }
    Ok(())
}

fn update_request(steer: &RequestUpdate, record: &StreamRecord) -> Result<(), ApiError> {
    let Some(told) = record.update_request(steer) else {
        let words =
            "a workflow run is controlled by its channels; it can only be paused and cancelled";
        return Err(ApiError::caller(
            ErrorKind::Conflict,
            "not_steerable",
            words,
        ));
    };
    told.map_err(|why| match why {
        UpdateRejected::Invalid(why) => ApiError::bad_request("invalid_value", why),
        UpdateRejected::Full => too_many_updates(),
    })
}

fn too_many_updates() -> ApiError {
    let words = "too many control updates are pending";
    ApiError::capacity("overloaded", words, Duration::from_secs(1))
}

/// Token ids of ordinary text: control tokens in the text are encoded as text.
fn encoded_text(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, ApiError> {
    let ids = tokenizer.encode(text, false);
    ids.map_err(|why| ApiError::field("text", "invalid_value", format!("text: {}", why.0)))
}

/// The stream is not running, so that there is nothing to pause, resume or update.
pub fn not_running() -> ApiError {
    ApiError::caller(
        ErrorKind::Conflict,
        "stream_not_running",
        "only a stream that was started and has not ended can be paused or resumed",
    )
}

impl StreamRecord {
    /// Ready after a cancellation before the start; pending forever otherwise.
    pub(crate) async fn cancelled_waiting(&self) {
        let mut stage = self.stage.subscribe();
        if stage
            .wait_for(|stage| *stage == StreamStage::Cancelled)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Cancels the stream within one step. An ended stream does not change.
    pub fn cancel(&self) {
        self.stage.send_if_modified(|stage| {
            let waits = *stage == StreamStage::Waiting;
            if waits {
                *stage = StreamStage::Cancelled;
            }
            waits
        });
        self.each_open(Handle::cancel);
        self.program().into_iter().for_each(|run| run.cancel());
    }

    /// Pauses or continues the stream; the total timeout and the deadline go on. False: the stream is not started, or
    /// has ended.
    pub fn pause(&self, paused: bool) -> bool {
        if self.started().is_none() || self.is_over() {
            return false;
        }
        self.paused.store(paused, Ordering::Relaxed);
        if let Some(durable) = self.durable() {
            durable.pause(paused);
        }
        self.each_open(if paused {
            Handle::pause
        } else {
            Handle::resume
        });
        self.program().into_iter().for_each(|run| run.pause(paused));
        true
    }

    /// Updates the generation from the engine's next step. `None`: the stream is a workflow run.
    pub(crate) fn update_request(
        &self,
        steer: &RequestUpdate,
    ) -> Option<Result<(), UpdateRejected>> {
        let started = self.started().filter(|_| self.program().is_none())?;
        let requests = started.requests.iter();
        let mut told = requests.map(|r| started.engine.update(r.id, steer.clone()));
        Some(told.find(Result::is_err).unwrap_or(Ok(())))
    }

    fn each_open(&self, tell: impl Fn(&Handle, RequestId)) {
        let Some(started) = self.started() else {
            return;
        };
        let open = |r: &&Submitted| r.progress.phase() != Phase::Ended;
        for request in started.requests.iter().filter(open) {
            tell(&started.engine, request.id);
        }
    }
}

/// Bytes of a control state's record that are left for the history.
const HISTORY_BYTES_MAX: usize = 64 << 10;

/// Control updates of one stream. The lock keeps the order of updates equal to the engine's.
#[derive(Debug, Default)]
pub(crate) struct Steering(Mutex<SteeringState>);

/// Control updates in effect, and those that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct SteeringState {
    /// Without history and count.
    pub(super) state: ControlState,
    /// Updates that earlier processes have applied.
    applied_before: u64,
}

impl Steering {
    pub(crate) fn lock(&self) -> MutexGuard<'_, SteeringState> {
        lock(&self.0)
    }

    /// Begins with the control updates of an earlier process. Those that wait are given to the engine again.
    pub(crate) fn restore(&self, control: &ControlState) {
        *self.lock() = SteeringState {
            applied_before: control.applied,
            state: ControlState {
                history: Vec::new(),
                ..control.clone()
            },
        };
    }
}

impl SteeringState {
    /// The state after one more update; this process has applied `applied`. `None`: the updates that wait are longer than a
    /// record.
    pub(crate) fn accept(&self, update: &RequestUpdate, applied: u64) -> Option<Self> {
        let mut next = self.clone();
        next.state
            .mark_applied(self.applied_before.saturating_add(applied));
        next.state.pending.push(update.clone());
        let bytes = next.state.encode().ok()?.len();
        (bytes + HISTORY_BYTES_MAX <= journal::SAMPLING_BYTES_MAX).then_some(next)
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
        let mut kept = lock(&self.0);
        kept.all += 1;
        if kept.last.len() == UPDATES_RECORDED_MAX {
            kept.last.pop_front();
        }
        kept.last.push_back((clock::now(), order));
    }

    /// Number of updates, and the last of them, for a stream opened at `opened`.
    pub(crate) fn recorded_updates(&self, opened: Instant) -> (u64, Vec<RecordedUpdate>) {
        let kept = lock(&self.0);
        let told = kept.last.iter().map(|(at, order)| RecordedUpdate {
            age_ms: u64::try_from(at.saturating_duration_since(opened).as_millis())
                .unwrap_or(u64::MAX),
            order: order.clone(),
        });
        (kept.all, told.collect())
    }

    /// Number of updates, and the last of them with wall times. The wall time is `now_unix_us` at `now`.
    pub(crate) fn timed_updates(&self, now: Instant, now_unix_us: u64) -> (u64, Vec<TimedUpdate>) {
        let kept = lock(&self.0);
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
        let mut kept = lock(&self.0);
        kept.all = count;
        kept.last = timed.collect();
        kept.last.truncate(UPDATES_RECORDED_MAX);
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
