//! `/v1/streams/feed`: state changes of all streams and snapshots of the metrics, for callers with the scope `admin`.
//!
//! The events come from the gateway's [`StreamFeed`]. A reader that the ring has overtaken gets the number of events
//! that it missed, and continues with the oldest event that is left.

use crate::config::live_config::LiveConfig;
use crate::metrics::{self, MetricsSnapshot, MetricsSources};
use crate::response::stream_response;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use gateway::lifecycle::Lifecycle;
use gateway::streams::{FeedEvent, StreamFeed};
use generate::stream_change::Change;
use schemars::JsonSchema;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::{sleep, timeout};
use wire::framing::Framing;
use wire::rfc3339;
use wire::{clock, json};

/// Length of a chunk after which no further event is appended.
const CHUNK_BYTES_ENOUGH: usize = 8 << 10;

/// An event of the stream feed.
#[derive(JsonSchema)]
#[schemars(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum FeedMessage {
    Metrics {
        at: String,
        metrics: Box<MetricsSnapshot>,
    },
    Opened(StreamEvent),
    Started(StreamEvent),
    Backpressure(StreamEvent),
    SlowConsumer(StreamEvent),
    Parked(StreamEvent),
    Resumed(StreamEvent),
    Ended(StreamEvent),
    /// The reader was too slow and missed events.
    Dropped {
        /// Number of events missed since the last event.
        count: u64,
        /// Number of events missed since the reader connected.
        total: u64,
    },
    /// The server is shutting down; this is the last event.
    Draining {},
}

/// A state change of a stream.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct StreamEvent {
    stream: String,
    at: String,
    /// Number of prompt tokens; absent while unknown.
    #[schemars(skip_serializing_if = "Option::is_none")]
    prompt: Option<u64>,
    /// Park reason; only in `parked` events.
    #[schemars(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Reason for the end of the stream; only in `ended` events.
    #[schemars(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Publishes a snapshot of the metrics each `metrics_export_interval` while the feed has readers.
pub(crate) async fn export_snapshots(
    sources: MetricsSources,
    feed: StreamFeed,
    config: Arc<LiveConfig>,
) {
    loop {
        // Each reader gets a snapshot at the beginning, so the first one here may be late.
        sleep(config.now().metrics_export_interval).await;
        if feed.has_readers() {
            feed.publish(snapshot_event(&sources));
        }
    }
}

fn snapshot_event(sources: &MetricsSources) -> FeedEvent {
    let snapshot = serde_json::to_vec(&metrics::take_snapshot(sources)).unwrap_or_default();
    FeedEvent::Metrics {
        snapshot: snapshot.into(),
        at: clock::now(),
    }
}

/// `GET /v1/streams/feed`: a snapshot of the metrics, then the events from now on, until the client disconnects or the
/// server shuts down. The authentication layer has checked the scope.
pub(crate) async fn show_feed(
    State(sources): State<MetricsSources>,
    State(feed): State<StreamFeed>,
    State(lifecycle): State<Arc<Lifecycle>>,
    State(config): State<Arc<LiveConfig>>,
) -> Response {
    let mut first = BytesMut::new();
    let ring = feed.subscribe();
    write_event(&snapshot_event(&sources), &mut first);
    let reader = FeedReader {
        ring,
        draining: lifecycle.drain_watch(),
        keep_alive: config.now().keep_alive,
        first: Some(first.freeze()),
        dropped: 0,
        over: false,
    };
    let body = Body::from_stream(unfold(reader, |mut reader| async move {
        let chunk = reader.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), reader))
    }));
    stream_response::framed_response(Framing::Sse, None, body)
}

struct FeedReader {
    ring: broadcast::Receiver<FeedEvent>,
    draining: watch::Receiver<bool>,
    keep_alive: Duration,
    first: Option<Bytes>,
    /// Events that this reader has missed.
    dropped: u64,
    over: bool,
}

impl FeedReader {
    /// The next events, or a keep-alive. `None` after the last event of a server that shuts down.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.over {
            return None;
        }
        let mut out = BytesMut::new();
        let draining = self.draining.wait_for(|draining| *draining);
        let received = tokio::select! {
            received = timeout(self.keep_alive, self.ring.recv()) => Some(received),
            _ = draining => None,
        };
        match received {
            Some(Ok(Ok(event))) => write_event(&event, &mut out),
            Some(Ok(Err(RecvError::Lagged(missed)))) => self.write_dropped(missed, &mut out),
            Some(Err(_)) => json::raw(&mut out, ": ping\n\n"),
            Some(Ok(Err(RecvError::Closed))) | None => self.over = true,
        }
        self.take_more(&mut out);
        if self.over {
            json::raw(&mut out, "data: {\"type\":\"draining\"}\n\n");
        }
        Some(out.freeze())
    }

    /// Appends the events that are in the ring already.
    fn take_more(&mut self, out: &mut BytesMut) {
        while out.len() < CHUNK_BYTES_ENOUGH {
            match self.ring.try_recv() {
                Ok(event) => write_event(&event, out),
                Err(TryRecvError::Lagged(missed)) => self.write_dropped(missed, out),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn write_dropped(&mut self, missed: u64, out: &mut BytesMut) {
        self.dropped += missed;
        json::raw(out, "data: {\"type\":\"dropped\",\"count\":");
        json::integer(out, missed);
        json::raw(out, ",\"total\":");
        json::integer(out, self.dropped);
        json::raw(out, "}\n\n");
    }
}

fn write_event(event: &FeedEvent, out: &mut BytesMut) {
    match event {
        FeedEvent::Metrics { snapshot, at } => {
            json::raw(out, "data: {\"type\":\"metrics\"");
            write_time(*at, out);
            json::raw(out, ",\"metrics\":");
            out.extend_from_slice(snapshot);
        }
        FeedEvent::Undurable { stream, at } => {
            json::raw(out, "data: {\"type\":\"undurable\",\"stream\":\"");
            json::raw(out, &stream.to_string());
            json::raw(out, "\"");
            write_time(*at, out);
        }
        FeedEvent::Change {
            stream,
            change,
            prompt,
            at,
        } => {
            json::raw(out, "data: {\"type\":\"");
            json::raw(out, change_name(*change));
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

fn change_name(change: Change) -> &'static str {
    match change {
        Change::Opened => "opened",
        Change::Recovered => "recovered",
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
    json::string(out, &rfc3339::utc_millis(clock::wall(at)));
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
