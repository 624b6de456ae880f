//! `/v1/heartbeats/stream`: periodic events with the stage of the server and the load of the engine.
//!
//! A heartbeat is written when the connection can take it. A slow reader gets the newest one, with the number of
//! heartbeats that were skipped; nothing is queued.

use crate::health::EngineLoad;
use axum::body::{Body, Bytes};
use futures_util::stream;
use gateway::lifecycle::Lifecycle;
use schemars::JsonSchema;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};
use wire::clock;
use wire::rfc3339;

/// Time between two heartbeats.
const HEARTBEAT_EACH: Duration = Duration::from_secs(1);

/// Heartbeats until the client disconnects or the server shuts down.
pub(crate) fn heartbeat_body(lifecycle: Arc<Lifecycle>) -> Body {
    let beats = HeartbeatStream {
        draining: lifecycle.drain_watch(),
        lifecycle,
        schedule: HeartbeatSchedule::new(Instant::now(), HEARTBEAT_EACH),
        over: false,
    };
    Body::from_stream(stream::unfold(beats, |mut beats| async move {
        let beat = beats.next_heartbeat().await?;
        Some((Ok::<_, Infallible>(beat), beats))
    }))
}

/// A heartbeat.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Heartbeat {
    r#type: &'static str,
    /// Sequence number of the heartbeat.
    seq: u64,
    /// Number of heartbeats that were skipped so far because the reader was slow.
    dropped: u64,
    at: String,
    state: &'static str,
    engine: Option<EngineLoad>,
}

struct HeartbeatStream {
    lifecycle: Arc<Lifecycle>,
    draining: watch::Receiver<bool>,
    schedule: HeartbeatSchedule,
    over: bool,
}

impl HeartbeatStream {
    /// The first heartbeat is due at once; the last one reports the shutdown.
    async fn next_heartbeat(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let draining = self.draining.wait_for(|&draining| draining);
        tokio::select! {
            _ = draining => self.over = true,
            () = self.schedule.next_timer() => {}
        }
        let (seq, dropped) = self.schedule.take_due(Instant::now());
        let beat = Heartbeat {
            r#type: "heartbeat",
            seq,
            dropped,
            at: rfc3339::utc_millis(clock::wall(clock::now())),
            state: self.lifecycle.stage().name(),
            engine: EngineLoad::of_first(self.lifecycle.model_registry()),
        };
        let beat = serde_json::to_string(&beat).unwrap_or_default();
        Some(Bytes::from(format!("data: {beat}\n\n")))
    }
}

/// Schedule of the heartbeats, and the number of those skipped.
struct HeartbeatSchedule {
    start: Instant,
    each: Duration,
    /// The next heartbeat's number.
    next: u64,
    dropped: u64,
}

impl HeartbeatSchedule {
    fn new(start: Instant, each: Duration) -> Self {
        Self {
            start,
            each,
            next: 0,
            dropped: 0,
        }
    }

    fn due_at(&self, number: u64) -> Instant {
        self.start + self.each.mul_f64(number as f64)
    }

    fn next_timer(&self) -> Sleep {
        sleep_until(self.due_at(self.next))
    }

    /// The newest heartbeat that is due (or the next one, early), and the number of heartbeats skipped so far.
    fn take_due(&mut self, now: Instant) -> (u64, u64) {
        let mut newest = self.next;
        let passed = now.saturating_duration_since(self.start).as_nanos() / self.each.as_nanos();
        newest = newest.max(u64::try_from(passed).unwrap_or(u64::MAX));
        self.dropped += newest - self.next;
        self.next = newest + 1;
        (newest, self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_reader_gets_the_newest_heartbeat_and_the_number_skipped() {
        let (start, each) = (Instant::now(), Duration::from_secs(1));
        let mut schedule = HeartbeatSchedule::new(start, each);
        let rows = [
            (0, (0, 0)),
            (1000, (1, 0)),
            (2500, (2, 0)),
            (6100, (6, 3)),
            (6900, (7, 3)),
            (8000, (8, 3)),
        ];
        for (ms, want) in rows {
            assert_eq!(
                schedule.take_due(start + Duration::from_millis(ms)),
                want,
                "{ms}"
            );
        }
        assert_eq!(schedule.due_at(schedule.next), start + 9 * each);
    }
}
