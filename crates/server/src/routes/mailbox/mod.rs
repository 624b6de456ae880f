//! `/v1/mailbox`: ends of streams that nobody was there to read, of the caller's key, at all gateways of a cluster.
//!
//! ```text
//! mailbox_query   what a client wants to read
//! mailbox_reader  waits for events, here and at the other gateways
//! event_stream    a mailbox as server-sent events
//! mailbox_news    wakes readers when an event comes at another gateway
//! ```
//!
//! A gateway asks the others with the reader's cursor, which has a place for each process that puts events into mailboxes,
//! and merges their pages. To another gateway, a page has the places of its events.

mod event_stream;
mod mailbox_news;
mod mailbox_query;
mod mailbox_reader;

use crate::app::App;
use crate::peers::{FORWARDED, ListScope, PassedRequest, PeerReach, Unanswered};
use crate::request::extract::{Authenticated, JsonBody};
use crate::response::error_response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
pub(crate) use event_stream::MailboxNotice;
use event_stream::event_stream;
use gateway::ended::EventObject;
use gateway::mailbox::MailboxCursor;
use http::request::Parts;
pub(crate) use mailbox_news::exchange_mailbox_news;
use mailbox_query::MailboxQuery;
pub(crate) use mailbox_query::{EVENTS_MAX, WAIT_MS_MAX};
use mailbox_reader::{MailboxReader, MergedPage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::fields::Fields;
use wire::item_page::RawItem;
use wire::mailbox_acknowledgement::MailboxAcknowledgement;

/// Events of a mailbox after a cursor, the oldest first.
#[derive(JsonSchema, Serialize)]
pub(crate) struct MailboxEvents {
    object: &'static str,
    data: Vec<RawItem<EventObject<'static>>>,
    /// The position after these events.
    cursor: String,
    /// Whether there are further events now.
    has_more: bool,
    /// Number of events that were removed by number or age before they were acknowledged.
    dropped: u64,
    /// Gateways whose events are missing; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unanswered: Vec<Unanswered>,
}

impl MailboxEvents {
    fn new(merged: MergedPage, cursor: &MailboxCursor) -> Self {
        let page = &merged.page;
        let events = page.entries.iter();
        Self {
            object: "list",
            data: events
                .map(|entry| RawItem::new(entry.event.get()))
                .collect(),
            cursor: cursor.to_string(),
            has_more: page.has_more,
            dropped: page.dropped,
            unanswered: merged.unanswered,
        }
    }
}

/// Reads the caller's mailbox after a cursor: at once, when there are events, or as a stream of events.
pub(crate) async fn read_mailbox(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    head: Parts,
) -> Result<Response, Rejected> {
    let query = MailboxQuery::parse(&head.headers, &head.uri)?;
    let mut reader = MailboxReader::new(&app, &caller, query.after);
    if query.scope == ListScope::Cluster && app.peer_calls.is_clustered() {
        reader = reader.with_others(&app, head);
    }
    if query.is_streamed {
        return Ok(event_stream(reader, app.config.now().keep_alive));
    }
    let merged = reader.next_page(query.limit, query.wait).await;
    if query.is_forwarded {
        return Ok(Json(merged.page).into_response());
    }
    Ok(Json(MailboxEvents::new(merged, reader.cursor())).into_response())
}

/// Result of an acknowledgement.
#[derive(JsonSchema, Serialize)]
pub(crate) struct AcknowledgedEvents {
    object: &'static str,
    /// Number of events that were removed.
    removed: usize,
    /// Gateways that the acknowledgement did not reach; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unanswered: Vec<Unanswered>,
}

/// Removes the events up to a cursor from the caller's mailbox, at all gateways.
pub(crate) async fn acknowledge_events(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    head: Parts,
    JsonBody(body): JsonBody,
) -> Result<Json<AcknowledgedEvents>, Rejected> {
    let acknowledged = MailboxAcknowledgement::parse(Fields::parse(&body)?)?;
    let cursor = MailboxCursor::parse(&acknowledged.cursor, "cursor")?;
    let (removed, forgotten) = app.gateway.mailboxes.acknowledge(caller.owner, &cursor);
    forgotten.written().await;
    let mut all = AcknowledgedEvents {
        object: "mailbox.acknowledgement",
        removed,
        unanswered: Vec::new(),
    };
    if !head.headers.contains_key(FORWARDED) {
        let request = PassedRequest::of(&head, body);
        let asked = app.peer_calls.ask_all(PeerReach::Gateways, &request).await;
        all.unanswered = asked.unanswered;
        for answer in asked.answers {
            match serde_json::from_slice::<RemovedEvents>(&answer.body) {
                Ok(there) => all.removed += there.removed,
                Err(why) => {
                    let why = format!("its answer cannot be read: {why}");
                    all.unanswered.push(Unanswered::new(&answer.peer, why));
                }
            }
        }
    }
    Ok(Json(all))
}

/// The part of another gateway's [`AcknowledgedEvents`] that is added up.
#[derive(Deserialize)]
struct RemovedEvents {
    removed: usize,
}
