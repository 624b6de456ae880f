//! `/v1/heartbeats/stream`: a sign of life and a few figures, again and again.
//!
//! Telemetry: who reads slowly gets the newest, and is told how many there were in between. There is no
//! queue to be full; a heartbeat is made when the connection can take it.

use crate::app::App;
use crate::health::Load;
use crate::wire::clock;
use crate::wire::native::rfc3339;
use axum::body::{Body, Bytes};
use futures_util::stream;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

/// Time between two heartbeats.
const HEARTBEAT_EACH: Duration = Duration::from_secs(1);

/// Heartbeats until the client or the server leaves.
pub(crate) fn body(app: Arc<App>) -> Body {
    let beats = Beats {
        draining: app.lifecycle.draining(),
        app,
        rhythm: Rhythm::new(Instant::now(), HEARTBEAT_EACH),
        over: false,
    };
    Body::from_stream(stream::unfold(beats, |mut beats| async move {
        let beat = beats.next().await?;
        Some((Ok::<_, Infallible>(beat), beats))
    }))
}

struct Beats {
    app: Arc<App>,
    draining: watch::Receiver<bool>,
    rhythm: Rhythm,
    over: bool,
}

impl Beats {
    /// The first comes at once; the last says that the server leaves.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let draining = self.draining.wait_for(|&draining| draining);
        tokio::select! {
            _ = draining => self.over = true,
            () = self.rhythm.timer() => {}
        }
        let (seq, dropped) = self.rhythm.beat(Instant::now());
        let beat = json!({
            "type": "heartbeat",
            "seq": seq,
            "dropped": dropped,
            "at": rfc3339::utc(clock::wall(clock::now())),
            "state": self.app.lifecycle.stage().name(),
            "engine": Load::of_first(&self.app),
        });
        Some(Bytes::from(format!("data: {beat}\n\n")))
    }
}

/// When heartbeats are due, and which of them were missed.
struct Rhythm {
    start: Instant,
    each: Duration,
    /// The number of the next.
    next: u64,
    dropped: u64,
}

impl Rhythm {
    fn new(start: Instant, each: Duration) -> Self {
        Self {
            start,
            each,
            next: 0,
            dropped: 0,
        }
    }

    fn due(&self, number: u64) -> Instant {
        self.start + self.each.mul_f64(number as f64)
    }

    fn timer(&self) -> Sleep {
        sleep_until(self.due(self.next))
    }

    /// The newest that is due, or the next one early, and how many were passed over so far.
    fn beat(&mut self, now: Instant) -> (u64, u64) {
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
    fn who_is_late_gets_the_newest_and_the_count() {
        let (start, each) = (Instant::now(), Duration::from_secs(1));
        let mut rhythm = Rhythm::new(start, each);
        let rows = [
            (0, (0, 0)),
            (1000, (1, 0)),
            (2500, (2, 0)),
            (6100, (6, 3)),
            (6900, (7, 3)),
            (8000, (8, 3)),
        ];
        for (ms, want) in rows {
            assert_eq!(rhythm.beat(start + Duration::from_millis(ms)), want, "{ms}");
        }
        assert_eq!(rhythm.due(rhythm.next), start + 9 * each);
    }
}
