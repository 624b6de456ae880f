//! A mailbox as server-sent events. The id of an event is the cursor after it.

use super::mailbox_query::EVENTS_MAX;
use super::mailbox_reader::MailboxReader;
use crate::peers::Unanswered;
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

/// The response with the events of a mailbox, until the client disconnects or the server shuts down.
pub(super) fn event_stream(reader: MailboxReader, keep_alive: Duration) -> Response {
    let stream = EventStream {
        reader,
        keep_alive,
        dropped: 0,
        unanswered: Vec::new(),
        is_begun: false,
    };
    let body = Body::from_stream(unfold(stream, |mut stream| async move {
        let chunk = stream.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), stream))
    }));
    stream_response::framed_response(Framing::Sse, None, body)
}

/// An event about the mailbox itself.
#[derive(JsonSchema, Serialize)]
#[serde(tag = "type")]
pub(crate) enum MailboxNotice {
    /// Events that the client will not get.
    #[serde(rename = "mailbox.dropped")]
    Dropped {
        /// Number of events that were removed by number or age before they were acknowledged.
        dropped: u64,
    },
    /// Another set of gateways does not answer.
    #[serde(rename = "mailbox.unanswered")]
    Unanswered {
        /// Gateways whose events are missing; empty: all answer again.
        unanswered: Vec<Unanswered>,
    },
}

impl MailboxNotice {
    fn write(&self, out: &mut BytesMut) {
        let kind = match self {
            Self::Dropped { .. } => "mailbox.dropped",
            Self::Unanswered { .. } => "mailbox.unanswered",
        };
        let data = serde_json::to_string(self).unwrap_or_default();
        sse::write_event(None, kind, &data, out);
    }
}

struct EventStream {
    reader: MailboxReader,
    keep_alive: Duration,
    /// Dropped events that the client knows of.
    dropped: u64,
    /// Gateways that the client knows to be silent, by id.
    unanswered: Vec<String>,
    /// Whether an event was sent.
    is_begun: bool,
}

impl EventStream {
    /// The next events, or a keep-alive. `None` when the server shuts down.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut cursor = self.reader.cursor().clone();
        let limit = usize::try_from(EVENTS_MAX).unwrap_or(1);
        let merged = self.reader.next_page(limit, self.keep_alive).await;
        let page = &merged.page;
        if page.entries.is_empty() && self.reader.is_draining() {
            return None;
        }
        let mut out = BytesMut::new();
        let silent = merged.unanswered.iter().map(|one| one.instance.clone());
        let silent: Vec<String> = silent.collect();
        let (is_dropped, is_silent) = (page.dropped > self.dropped, silent != self.unanswered);
        let has_event = is_dropped || is_silent || !page.entries.is_empty();
        if has_event && !std::mem::replace(&mut self.is_begun, true) {
            sse::write_retry(&mut out);
        }
        if is_dropped {
            self.dropped = page.dropped;
            let dropped = page.dropped;
            MailboxNotice::Dropped { dropped }.write(&mut out);
        }
        if is_silent {
            self.unanswered = silent;
            let unanswered = merged.unanswered.clone();
            MailboxNotice::Unanswered { unanswered }.write(&mut out);
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
