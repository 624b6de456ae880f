//! A mailbox as server-sent events. The id of an event is the cursor after it.

use super::mailbox_query::EVENTS_MAX;
use super::mailbox_reader::MailboxReader;
use crate::response::stream_response;
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use schemars::JsonSchema;
use serde::Serialize;
use std::convert::Infallible;
use std::time::Duration;
use wire::framing::Framing;
use wire::sse;

/// Type of the event about events that were dropped.
const DROPPED: &str = "mailbox.dropped";

/// The response with the events of a mailbox, until the client disconnects or the server shuts down.
pub(super) fn event_stream(reader: MailboxReader, keep_alive: Duration) -> Response {
    let stream = EventStream {
        reader,
        keep_alive,
        dropped: 0,
        is_begun: false,
    };
    let body = Body::from_stream(unfold(stream, |mut stream| async move {
        let chunk = stream.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), stream))
    }));
    stream_response::framed_response(Framing::Sse, None, body)
}

/// Tells a client of events that it will not get.
#[derive(JsonSchema, Serialize)]
pub(crate) struct DroppedEvents {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Number of events that were removed by number or age before they were acknowledged.
    dropped: u64,
}

struct EventStream {
    reader: MailboxReader,
    keep_alive: Duration,
    /// Dropped events that the client knows of.
    dropped: u64,
    /// Whether an event was sent.
    is_begun: bool,
}

impl EventStream {
    /// The next events, or a keep-alive. `None` when the server shuts down.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut cursor = self.reader.cursor().clone();
        let limit = usize::try_from(EVENTS_MAX).unwrap_or(1);
        let page = self.reader.next_page(limit, self.keep_alive).await;
        if page.entries.is_empty() && self.reader.is_draining() {
            return None;
        }
        let mut out = BytesMut::new();
        let has_event = page.dropped > self.dropped || !page.entries.is_empty();
        if has_event && !std::mem::replace(&mut self.is_begun, true) {
            sse::write_retry(&mut out);
        }
        if page.dropped > self.dropped {
            self.dropped = page.dropped;
            let data = serde_json::to_string(&DroppedEvents {
                kind: DROPPED,
                dropped: page.dropped,
            });
            let data = data.unwrap_or_default();
            sse::write_event(None, DROPPED, &data, &mut out);
        }
        for entry in &page.entries {
            cursor.pass(entry);
            let id = cursor.to_string();
            sse::write_event(Some(&id), &entry.kind, entry.event.get(), &mut out);
        }
        if out.is_empty() {
            wire::json::raw(&mut out, ": ping\n\n");
        }
        Some(out.freeze())
    }
}
