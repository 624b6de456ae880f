//! Framing: how the frames of a stream are separated in a body.

use crate::cursor::CursorText;
use crate::item_page::Query;
use crate::json;
use bytes::BytesMut;
use generate::error::ApiError;
use http::{HeaderMap, header};
use std::fmt::{Arguments, Write};

/// How frames are separated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events, with optional comments between them.
    #[default]
    Sse,
    /// Newline-delimited JSON: one object per line, without comments.
    Ndjson,
    /// WebSocket messages: one object per message.
    WebSocket,
}

impl Framing {
    /// All framings.
    pub const ALL: [Self; 3] = [Self::Sse, Self::Ndjson, Self::WebSocket];

    /// Name of the framing.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::Ndjson => "ndjson",
            Self::WebSocket => "websocket",
        }
    }

    /// The framing with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|framing| framing.name() == name)
    }

    /// The framing that a request selects by `?format=` or `Accept`, if any.
    ///
    /// # Errors
    /// The query names an unknown framing.
    pub fn from_request(headers: &HeaderMap, query: &Query) -> Result<Option<Self>, ApiError> {
        let given = query.one_of("format", [("sse", Self::Sse), ("ndjson", Self::Ndjson)])?;
        Ok(given.or(accepts_events(headers).then_some(Self::Sse)))
    }

    /// The framing of a response, given the protocol's default: only NDJSON protocols can switch to server-sent
    /// events.
    pub fn or_requested(self, requested: Option<Self>) -> Self {
        match self {
            Self::Ndjson => requested.unwrap_or(Self::Ndjson),
            framing => framing,
        }
    }

    /// `Content-Type` of a body with this framing.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::Ndjson | Self::WebSocket => "application/x-ndjson",
        }
    }
}

/// Whether `Accept` lists `text/event-stream`; `*/*` does not count.
fn accepts_events(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter();
    let mut ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    ranges.any(|range| {
        let essence = range.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("text/event-stream")
    })
}

/// Time after which a client of a resumable stream reconnects, in milliseconds. Browsers wait about three seconds
/// without this field.
const RETRY_MS: u64 = 250;

/// Writes the reconnection time as the first field of an event. A block of this field alone would be an event with empty
/// data in some clients.
pub fn write_retry(out: &mut BytesMut) {
    json::raw(out, "retry: ");
    json::integer(out, RETRY_MS);
    json::raw(out, "\n");
}

/// Writes the fields of an event up to the beginning of its data.
pub(crate) fn begin_event(id: Option<CursorText<'_>>, name: Option<&str>, out: &mut BytesMut) {
    if let Some(id) = id {
        json::raw(out, "id: ");
        id.write_to(out);
        json::raw(out, "\n");
    }
    if let Some(name) = name {
        json::raw(out, "event: ");
        json::raw(out, name);
        json::raw(out, "\n");
    }
    json::raw(out, "data: ");
}

/// Ends an event after the data.
pub(crate) fn end_event(out: &mut BytesMut) {
    json::raw(out, "\n\n");
}

/// Writes a comment on a line of its own; clients ignore comments.
pub(crate) fn write_comment_line(text: Arguments<'_>, out: &mut BytesMut) {
    json::raw(out, ": ");
    // Writing into memory does not fail.
    let _ = out.write_fmt(text);
    json::raw(out, "\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use http::{HeaderValue, Uri};

    #[test]
    fn ndjson_becomes_sse_on_request_only() {
        use Framing::{Ndjson, Sse};
        let rows = [
            (Protocol::OllamaChat, "", None, Some(Ndjson)),
            (Protocol::OllamaChat, "", Some("*/*"), Some(Ndjson)),
            (
                Protocol::OllamaChat,
                "",
                Some("application/json"),
                Some(Ndjson),
            ),
            (
                Protocol::OllamaChat,
                "",
                Some("Text/Event-Stream"),
                Some(Sse),
            ),
            (
                Protocol::OllamaGenerate,
                "",
                Some("application/json, text/event-stream;q=0.9"),
                Some(Sse),
            ),
            (Protocol::OllamaGenerate, "?format=sse", None, Some(Sse)),
            (
                Protocol::OllamaGenerate,
                "?format=ndjson",
                Some("text/event-stream"),
                Some(Ndjson),
            ),
            (Protocol::OllamaGenerate, "?format=xml", None, None),
            (Protocol::Chat, "?format=ndjson", None, Some(Sse)),
        ];
        for (protocol, query, accept, want) in rows {
            let uri: Uri = format!("http://localhost/{query}").parse().unwrap();
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            let query = Query::of(&uri).unwrap_or_else(|e| panic!("{}", e.message));
            let requested = Framing::from_request(&headers, &query).ok();
            let framing = requested.map(|requested| protocol.framing().or_requested(requested));
            assert_eq!(framing, want, "{uri} {accept:?}");
        }
    }
}
