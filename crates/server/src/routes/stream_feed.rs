//! `/v1/streams/feed`: state changes of all streams and snapshots of the metrics, for callers with the
//! scope `admin`; for others, of their own streams.
//!
//! The events come from the gateway's [`StreamFeed`], and in a cluster from the feeds of the other gateways. A reader that the ring has overtaken gets the number of events
//! that it missed, and continues with the oldest event that is left.

use super::peer_feeds::PeerFeeds;
use crate::config::live_config::LiveConfig;
use crate::metrics::{self, MetricsSnapshot, MetricsSources};
use crate::peers::{FeedPlace, ListScope, PassedRequest};
use crate::request::extract::Authenticated;
use crate::response::{Rejected, stream_response};
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
use serde::Serialize;
use serde_json::value::RawValue;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::StreamId;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::{sleep, sleep_until};
use wire::framing::Framing;
use wire::item_page::Query;
use wire::{clock, json};

/// Length of a chunk after which no further event is appended.
const CHUNK_BYTES_ENOUGH: usize = 8 << 10;

/// An event of the stream feed. `instance` is the gateway that the event is from; absent without a cluster.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum FeedMessage<'a> {
    Metrics {
        #[serde(skip_serializing_if = "Option::is_none")]
        instance: Option<&'a str>,
        at: String,
        #[schemars(with = "Box<MetricsSnapshot>")]
        metrics: &'a RawValue,
    },
    Opened(StreamEvent<'a>),
    /// The stream of an earlier process of this gateway continues.
    Recovered(StreamEvent<'a>),
    /// The stream of another gateway, which is gone, continues at this one.
    Claimed(StreamEvent<'a>),
    Started(StreamEvent<'a>),
    Backpressure(StreamEvent<'a>),
    SlowConsumer(StreamEvent<'a>),
    Parked(StreamEvent<'a>),
    Resumed(StreamEvent<'a>),
    /// The request runs on another engine than before.
    Moved(StreamEvent<'a>),
    /// The stream does not outlive the process any more.
    Undurable(StreamEvent<'a>),
    Ended(StreamEvent<'a>),
    /// The reader was too slow and missed events.
    Dropped {
        #[serde(skip_serializing_if = "Option::is_none")]
        instance: Option<&'a str>,
        /// Number of events missed since the last event, those of other callers' streams included.
        count: u64,
        /// Number of events missed since the reader connected.
        total: u64,
    },
    /// The instance is shutting down; this is its last event, and the last of the feed if it is the one that answers.
    Draining {
        #[serde(skip_serializing_if = "Option::is_none")]
        instance: Option<&'a str>,
    },
    /// The feed of another gateway cannot be read: its events are missing from now on.
    Unreachable {
        instance: String,
        /// Why the feed cannot be read.
        reason: &'a str,
    },
    /// The feed of another gateway is read again.
    Reachable {
        instance: String,
    },
}

/// A state change of a stream.
#[derive(JsonSchema, Serialize)]
pub(crate) struct StreamEvent<'a> {
    /// Id of the gateway that owns the stream; absent without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    stream: String,
    at: String,
    /// Number of prompt tokens; absent while unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<u32>,
    /// Park reason; only in `parked` events.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Reason for the end of the stream; only in `ended` events.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

impl FeedMessage<'_> {
    /// Appends the message as an event.
    pub(super) fn write_to(&self, out: &mut BytesMut) {
        json::raw(out, "data: ");
        json::write(self, out);
        json::raw(out, "\n\n");
    }
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
    let instance = peers.own_name();
    let source = EventSource { instance };
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
            let instance = self.source.instance.as_deref();
            FeedMessage::Draining { instance }.write_to(&mut out);
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
        let dropped = FeedMessage::Dropped {
            instance: self.source.instance.as_deref(),
            count: missed,
            total: self.dropped,
        };
        dropped.write_to(out);
    }
}

/// Writes events of this instance.
struct EventSource {
    /// Id of the instance; `None` without a cluster.
    instance: Option<String>,
}

impl EventSource {
    fn write_event(&self, event: &FeedEvent, out: &mut BytesMut) {
        let instance = self.instance.as_deref();
        let message = match event {
            FeedEvent::Metrics { snapshot, at } => FeedMessage::Metrics {
                instance,
                at: time_text(*at),
                metrics: serde_json::from_slice(snapshot).unwrap_or(RawValue::NULL),
            },
            FeedEvent::Undurable { stream, at } => {
                FeedMessage::Undurable(self.stream_event(*stream, *at))
            }
            FeedEvent::Change {
                stream,
                change,
                prompt,
                at,
                owner: _,
            } => {
                let event = StreamEvent {
                    prompt: *prompt,
                    ..self.stream_event(*stream, *at)
                };
                change_message(*change, event)
            }
        };
        message.write_to(out);
    }

    fn stream_event(&self, stream: StreamId, at: Instant) -> StreamEvent<'_> {
        StreamEvent {
            instance: self.instance.as_deref(),
            stream: stream.to_string(),
            at: time_text(at),
            prompt: None,
            reason: None,
            end: None,
            detail: None,
        }
    }
}

fn change_message(change: Change, event: StreamEvent<'_>) -> FeedMessage<'_> {
    match change {
        Change::Opened => FeedMessage::Opened(event),
        Change::Recovered => FeedMessage::Recovered(event),
        Change::Claimed => FeedMessage::Claimed(event),
        Change::Moved => FeedMessage::Moved(event),
        Change::Started => FeedMessage::Started(event),
        Change::Backpressure => FeedMessage::Backpressure(event),
        Change::SlowConsumer => FeedMessage::SlowConsumer(event),
        Change::Parked { reason } => FeedMessage::Parked(StreamEvent {
            reason: Some(reason),
            ..event
        }),
        Change::Resumed => FeedMessage::Resumed(event),
        Change::Ended { how, detail } => FeedMessage::Ended(StreamEvent {
            end: Some(how),
            detail,
            ..event
        }),
    }
}

fn time_text(at: Instant) -> String {
    clock::utc_millis(clock::wall(at))
}
