//! `/v1/streams/feed`: state changes of all streams and snapshots of the metrics, for callers with the
//! scope `admin`; for others, of their own streams.
//!
//! The events come from the gateway's [`StreamFeed`], and in a cluster from the feeds of the other gateways. A reader that the ring has overtaken gets the number of events
//! that it missed, and continues with the oldest event that is left.

use crate::config::live_config::LiveConfig;
use crate::metrics::{self, MetricsSnapshot, MetricsSources};
use crate::peers::{FeedPlace, ListScope, PassedRequest};
use crate::request::extract::Authenticated;
use crate::response::error_response::Rejected;
use crate::response::stream_response;
use crate::routes::peer_feeds::PeerFeeds;
use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use gateway::lifecycle::Lifecycle;
use gateway::streams::{FeedEvent, FeedView, StreamFeed};
use generate::stream_source::Change;
use schemars::JsonSchema;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::StreamId;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::{sleep, sleep_until};
use wire::framing::Framing;
use wire::query::Query;
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
        /// Id of the instance; absent without a cluster.
        #[schemars(skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        at: String,
        metrics: Box<MetricsSnapshot>,
    },
    Opened(StreamEvent),
    /// The stream of an earlier process of this gateway continues.
    Recovered(StreamEvent),
    /// The stream of another gateway, which is gone, continues at this one.
    Claimed(StreamEvent),
    Started(StreamEvent),
    Backpressure(StreamEvent),
    SlowConsumer(StreamEvent),
    Parked(StreamEvent),
    Resumed(StreamEvent),
    /// The request runs on another engine than before.
    Moved(StreamEvent),
    /// The stream does not outlive the process any more.
    Undurable(StreamEvent),
    Ended(StreamEvent),
    /// The reader was too slow and missed events.
    Dropped {
        /// Id of the instance whose events are missing; absent without a cluster.
        #[schemars(skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        /// Number of events missed since the last event, those of other callers' streams included.
        count: u64,
        /// Number of events missed since the reader connected.
        total: u64,
    },
    /// The instance is shutting down; this is its last event, and the last of the feed if it is the one that answers.
    Draining {
        /// Id of the instance; absent without a cluster.
        #[schemars(skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
    },
    /// The feed of another gateway cannot be read: its events are missing from now on.
    Unreachable {
        instance: String,
        /// Why the feed cannot be read.
        reason: String,
    },
    /// The feed of another gateway is read again.
    Reachable {
        instance: String,
    },
}

/// A state change of a stream.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct StreamEvent {
    /// Id of the gateway that owns the stream; absent without a cluster.
    #[schemars(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
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

/// `GET /v1/streams/feed`: a snapshot of the metrics and the recoveries of the last seconds, then the events from now on, until the client disconnects or the
/// server shuts down. Without the scope `admin`, only changes of the caller's own streams.
pub(crate) async fn show_feed(
    State(sources): State<MetricsSources>,
    State(feed): State<StreamFeed>,
    State(lifecycle): State<Arc<Lifecycle>>,
    State(config): State<Arc<LiveConfig>>,
    Authenticated(caller): Authenticated,
    head: Parts,
) -> Result<Response, Rejected> {
    let view = feed.view_of(&caller)?;
    let query = Query::of(&head.uri)?;
    let scope = ListScope::parse(&query, &head.headers, ListScope::Cluster)?;
    let peers = &sources.peer_calls.peers;
    let others = match (scope, peers.own_id()) {
        (ListScope::Cluster, Some(_)) => {
            let place = sources.peer_calls.take_feed_place(&view)?;
            let request = PassedRequest::get(&head, "/v1/streams/feed".to_owned());
            Some((PeerFeeds::follow(peers.clone(), request), place))
        }
        _ => None,
    };
    let source = EventSource::new(peers.own_name());
    let mut first = BytesMut::new();
    let (ring, recoveries) = feed.subscribe_after_recovery(clock::now());
    let begun = std::iter::once(snapshot_event(&sources)).chain(recoveries);
    begun
        .filter(|event| view.shows(event))
        .for_each(|event| source.write_event(&event, &mut first));
    if first.is_empty() {
        json::raw(&mut first, ": open\n\n");
    }
    let reader = FeedReader {
        ring,
        view,
        source,
        others,
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
    Ok(stream_response::framed_response(Framing::Sse, None, body))
}

struct FeedReader {
    ring: broadcast::Receiver<FeedEvent>,
    view: FeedView,
    source: EventSource,
    /// The other gateways' events, for a reader of the cluster's feed.
    others: Option<(PeerFeeds, FeedPlace)>,
    draining: watch::Receiver<bool>,
    keep_alive: Duration,
    first: Option<Bytes>,
    /// Events that this reader has missed.
    dropped: u64,
    over: bool,
}

/// Events for which a reader of the feed waits.
enum FeedNews {
    Own(Result<FeedEvent, RecvError>),
    /// An event of another gateway.
    Other(Bytes),
    Silence,
    Draining,
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
        // Changes of other callers' streams do not put the keep-alive off.
        let keep_alive_at = clock::now() + self.keep_alive;
        while out.is_empty() && !self.over {
            match self.next_news(keep_alive_at).await {
                FeedNews::Own(Ok(event)) => self.write_shown(&event, &mut out),
                FeedNews::Own(Err(RecvError::Lagged(missed))) => {
                    self.write_dropped(missed, &mut out);
                }
                FeedNews::Other(event) => out.extend_from_slice(&event),
                FeedNews::Silence => json::raw(&mut out, ": ping\n\n"),
                FeedNews::Own(Err(RecvError::Closed)) | FeedNews::Draining => self.over = true,
            }
        }
        self.take_more(&mut out);
        if self.over {
            self.source.write_type("draining", &mut out);
            json::raw(&mut out, "}\n\n");
        }
        Some(out.freeze())
    }

    async fn next_news(&mut self, keep_alive_at: Instant) -> FeedNews {
        let draining = self.draining.wait_for(|draining| *draining);
        let others = &mut self.others;
        let other = async {
            match others {
                Some((others, _)) => others.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            received = self.ring.recv() => FeedNews::Own(received),
            event = other => FeedNews::Other(event),
            () = sleep_until(keep_alive_at.into()) => FeedNews::Silence,
            _ = draining => FeedNews::Draining,
        }
    }

    /// Appends the events that are there already.
    fn take_more(&mut self, out: &mut BytesMut) {
        while out.len() < CHUNK_BYTES_ENOUGH {
            match self.ring.try_recv() {
                Ok(event) => self.write_shown(&event, out),
                Err(TryRecvError::Lagged(missed)) => self.write_dropped(missed, out),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        while out.len() < CHUNK_BYTES_ENOUGH
            && let Some((others, _)) = &mut self.others
            && let Some(event) = others.try_next()
        {
            out.extend_from_slice(&event);
        }
    }

    fn write_shown(&self, event: &FeedEvent, out: &mut BytesMut) {
        if self.view.shows(event) {
            self.source.write_event(event, out);
        }
    }

    fn write_dropped(&mut self, missed: u64, out: &mut BytesMut) {
        self.dropped += missed;
        self.source.write_type("dropped", out);
        json::raw(out, ",\"count\":");
        json::integer(out, missed);
        json::raw(out, ",\"total\":");
        json::integer(out, self.dropped);
        json::raw(out, "}\n\n");
    }
}

/// Writes events of this instance.
struct EventSource {
    /// `,"instance":ID`, or nothing without a cluster.
    instance: String,
}

impl EventSource {
    fn new(instance: Option<String>) -> Self {
        let instance = instance.map(|id| format!(",\"instance\":\"{id}\""));
        Self {
            instance: instance.unwrap_or_default(),
        }
    }

    /// The beginning of an event.
    fn write_type(&self, kind: &str, out: &mut BytesMut) {
        json::raw(out, "data: {\"type\":\"");
        json::raw(out, kind);
        json::raw(out, "\"");
        json::raw(out, &self.instance);
    }

    fn write_stream(&self, kind: &str, (stream, at): (StreamId, Instant), out: &mut BytesMut) {
        self.write_type(kind, out);
        json::raw(out, ",\"stream\":\"");
        json::raw(out, &stream.to_string());
        json::raw(out, "\"");
        write_time(at, out);
    }

    fn write_event(&self, event: &FeedEvent, out: &mut BytesMut) {
        match event {
            FeedEvent::Metrics { snapshot, at } => {
                self.write_type("metrics", out);
                write_time(*at, out);
                json::raw(out, ",\"metrics\":");
                out.extend_from_slice(snapshot);
            }
            FeedEvent::Undurable { stream, at } => {
                self.write_stream("undurable", (*stream, *at), out);
            }
            FeedEvent::Change {
                stream,
                change,
                prompt,
                at,
                owner: _,
            } => {
                self.write_stream(change_name(*change), (*stream, *at), out);
                if let Some(prompt) = prompt {
                    json::raw(out, ",\"prompt\":");
                    json::integer(out, u64::from(*prompt));
                }
                write_detail(*change, out);
            }
        }
        json::raw(out, "}\n\n");
    }
}

fn change_name(change: Change) -> &'static str {
    match change {
        Change::Opened => "opened",
        Change::Recovered => "recovered",
        Change::Claimed => "claimed",
        Change::Moved => "moved",
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
