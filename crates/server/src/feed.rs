//! `/v1/streams/feed`: what happens to every stream, and how things stand, for whoever may see all.
//!
//! Telemetry, not tokens: one bounded ring for all readers, written without waiting for any. A reader
//! that is passed by the ring is told how many it missed, and goes on with the oldest that is left.

use crate::app::App;
use crate::gateway::streams::FeedEvent;
use crate::metrics;
use crate::wire::clock;
use crate::wire::json;
use crate::wire::native::rfc3339;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use generate::stream_change::Change;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::{sleep, timeout};

/// A chunk this long takes no further event.
const CHUNK_BYTES_ENOUGH: usize = 8 << 10;

/// Tells how things stand each `metrics_export_interval`, as long as somebody reads.
pub(crate) async fn export(app: Arc<App>) {
    loop {
        // Every reader has a first one of its own.
        sleep(app.config.now().metrics_export_interval).await;
        if app.feed.has_readers() {
            app.feed.publish(snapshot(&app));
        }
    }
}

fn snapshot(app: &App) -> FeedEvent {
    let snapshot = serde_json::to_vec(&metrics::snapshot(app)).unwrap_or_default();
    FeedEvent::Metrics {
        snapshot: snapshot.into(),
        at: clock::now(),
    }
}

/// The feed from now on, until the client or the server leaves. How things stand comes first.
pub(crate) fn body(app: &App) -> Body {
    let mut first = BytesMut::new();
    let ring = app.feed.subscribe();
    write(&snapshot(app), &mut first);
    let reader = Reader {
        ring,
        draining: app.lifecycle.draining(),
        keep_alive: app.config.now().keep_alive,
        first: Some(first.freeze()),
        dropped: 0,
        over: false,
    };
    Body::from_stream(unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((Ok::<_, Infallible>(chunk), reader))
    }))
}

struct Reader {
    ring: broadcast::Receiver<FeedEvent>,
    draining: watch::Receiver<bool>,
    keep_alive: Duration,
    first: Option<Bytes>,
    /// Events it missed so far.
    dropped: u64,
    over: bool,
}

impl Reader {
    /// Some events, or a sign of life. `None` when the server leaves.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.over {
            return None;
        }
        let mut out = BytesMut::new();
        let draining = self.draining.wait_for(|draining| *draining);
        let came = tokio::select! {
            came = timeout(self.keep_alive, self.ring.recv()) => Some(came),
            _ = draining => None,
        };
        match came {
            Some(Ok(Ok(told))) => write(&told, &mut out),
            Some(Ok(Err(RecvError::Lagged(missed)))) => self.missed(missed, &mut out),
            Some(Err(_)) => json::raw(&mut out, ": ping\n\n"),
            Some(Ok(Err(RecvError::Closed))) | None => self.over = true,
        }
        self.take_more(&mut out);
        if self.over {
            json::raw(&mut out, "data: {\"type\":\"draining\"}\n\n");
        }
        Some(out.freeze())
    }

    /// What else is there already.
    fn take_more(&mut self, out: &mut BytesMut) {
        while out.len() < CHUNK_BYTES_ENOUGH {
            match self.ring.try_recv() {
                Ok(told) => write(&told, out),
                Err(TryRecvError::Lagged(missed)) => self.missed(missed, out),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn missed(&mut self, missed: u64, out: &mut BytesMut) {
        self.dropped += missed;
        json::raw(out, "data: {\"type\":\"dropped\",\"count\":");
        json::integer(out, missed);
        json::raw(out, ",\"total\":");
        json::integer(out, self.dropped);
        json::raw(out, "}\n\n");
    }
}

fn write(told: &FeedEvent, out: &mut BytesMut) {
    match told {
        FeedEvent::Metrics { snapshot, at } => {
            json::raw(out, "data: {\"type\":\"metrics\"");
            write_time(*at, out);
            json::raw(out, ",\"metrics\":");
            out.extend_from_slice(snapshot);
        }
        FeedEvent::Change {
            stream,
            change,
            prompt,
            at,
        } => {
            json::raw(out, "data: {\"type\":\"");
            json::raw(out, name(*change));
            json::raw(out, "\",\"stream\":\"");
            json::raw(out, &stream.to_string());
            json::raw(out, "\"");
            write_time(*at, out);
            if let Some(prompt) = prompt {
                json::raw(out, ",\"prompt\":");
                json::integer(out, *prompt as u64);
            }
            write_detail(*change, out);
        }
    }
    json::raw(out, "}\n\n");
}

fn name(change: Change) -> &'static str {
    match change {
        Change::Opened => "opened",
        Change::Started => "started",
        Change::Backpressure => "backpressure",
        Change::SlowConsumer => "slow_consumer",
        Change::Parked { .. } => "parked",
        Change::Resumed => "resumed",
        Change::Ended { .. } => "ended",
    }
}

fn write_time(at: Instant, out: &mut BytesMut) {
    json::raw(out, ",\"at\":");
    json::string(out, &rfc3339::utc(clock::wall(at)));
}

fn write_detail(change: Change, out: &mut BytesMut) {
    let (field, word, detail) = match change {
        Change::Parked { reason } => (",\"reason\":", reason, None),
        Change::Ended { how, detail } => (",\"end\":", how, detail),
        _ => return,
    };
    json::raw(out, field);
    json::string(out, word);
    if let Some(detail) = detail {
        json::raw(out, ",\"detail\":");
        json::string(out, detail);
    }
}
