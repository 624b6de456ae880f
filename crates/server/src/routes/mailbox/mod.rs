//! `/v1/mailbox`: ends of streams that nobody was there to read, of the caller's key.

mod event_stream;
mod mailbox_query;
mod mailbox_reader;

use crate::app::App;
use crate::request::extract::{Authenticated, JsonBody};
use crate::response::error_response::Rejected;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
pub(crate) use event_stream::DroppedEvents;
use event_stream::event_stream;
use gateway::ended::EventObject;
use gateway::mailbox::{MailboxCursor, MailboxPage};
use mailbox_query::MailboxQuery;
pub(crate) use mailbox_query::{EVENTS_MAX, WAIT_MS_MAX};
use mailbox_reader::MailboxReader;
use schemars::JsonSchema;
use serde::Serialize;
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
}

impl MailboxEvents {
    fn new(page: &MailboxPage, cursor: &MailboxCursor) -> Self {
        let events = page.entries.iter();
        Self {
            object: "list",
            data: events
                .map(|entry| RawItem::new(entry.event.get()))
                .collect(),
            cursor: cursor.to_string(),
            has_more: page.has_more,
            dropped: page.dropped,
        }
    }
}

/// Reads the caller's mailbox after a cursor: at once, when there are events, or as a stream of events.
pub(crate) async fn read_mailbox(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Rejected> {
    let query = MailboxQuery::parse(&headers, &uri)?;
    let mut reader = MailboxReader::new(&app, &caller, query.after);
    if query.is_streamed {
        return Ok(event_stream(reader, app.config.now().keep_alive));
    }
    let page = reader.next_page(query.limit, query.wait).await;
    Ok(Json(MailboxEvents::new(&page, reader.cursor())).into_response())
}

/// Result of an acknowledgement.
#[derive(JsonSchema, Serialize)]
pub(crate) struct AcknowledgedEvents {
    object: &'static str,
    /// Number of events that were removed.
    removed: usize,
}

/// Removes the events up to a cursor from the caller's mailbox.
pub(crate) async fn acknowledge_events(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    JsonBody(body): JsonBody,
) -> Result<Json<AcknowledgedEvents>, Rejected> {
    let acknowledged = MailboxAcknowledgement::parse(Fields::parse(&body)?)?;
    let cursor = MailboxCursor::parse(&acknowledged.cursor, "cursor")?;
    let removed = app.gateway.mailboxes.acknowledge(caller.owner, &cursor);
    Ok(Json(AcknowledgedEvents {
        object: "mailbox.acknowledgement",
        removed,
    }))
}
