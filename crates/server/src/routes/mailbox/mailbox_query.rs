//! The query of `GET /v1/mailbox`.

use crate::peers::{FORWARDED, ListScope};
use axum::http::{HeaderMap, HeaderValue, Uri};
use gateway::mailbox::MailboxCursor;
use generate::error::ApiError;
use std::time::Duration;
use wire::framing::Framing;
use wire::query::Query;

/// Events of a response.
pub(crate) const EVENTS_MAX: u64 = 100;
/// Longest wait for an event.
pub(crate) const WAIT_MS_MAX: u64 = 60_000;

/// Wishes of a client that reads its mailbox.
#[derive(Debug)]
pub(super) struct MailboxQuery {
    /// How far the client has read; by default, nothing.
    pub(super) after: MailboxCursor,
    pub(super) limit: usize,
    /// How long to wait for an event.
    pub(super) wait: Duration,
    /// Whether the response is a stream of events.
    pub(super) is_streamed: bool,
    pub(super) scope: ListScope,
    /// Whether another gateway asks for its part of a page.
    pub(super) is_forwarded: bool,
}

impl MailboxQuery {
    /// Parses header fields and query.
    ///
    /// # Errors
    /// A value is invalid.
    pub(super) fn parse(headers: &HeaderMap, uri: &Uri) -> Result<Self, ApiError> {
        let query = Query::of(uri)?;
        let header = headers.get("last-event-id").map(HeaderValue::to_str);
        // What is no text is no cursor.
        let header = header.map(|value| ("last-event-id", value.unwrap_or("?")));
        let after = query.get("after").map(|value| ("after", value)).or(header);
        let after = after.filter(|(_, text)| !text.is_empty());
        let after = after.map(|(name, text)| MailboxCursor::parse(text, name));
        let limit = query.number("limit", EVENTS_MAX)?.unwrap_or(EVENTS_MAX);
        let wait_ms = query.number("wait_ms", WAIT_MS_MAX)?.unwrap_or(0);
        let is_streamed = match query.get("stream") {
            Some("true") => true,
            Some("false") => false,
            Some(_) => {
                let words = "stream: must be true or false";
                return Err(ApiError::field("stream", "invalid_value", words));
            }
            None => Framing::from_request(headers, &query)? == Some(Framing::Sse),
        };
        Ok(Self {
            after: after.transpose()?.unwrap_or_default(),
            limit: usize::try_from(limit).unwrap_or(1).max(1),
            wait: Duration::from_millis(wait_ms),
            is_streamed,
            scope: ListScope::parse(&query, headers, ListScope::Cluster)?,
            is_forwarded: headers.contains_key(FORWARDED),
        })
    }
}
