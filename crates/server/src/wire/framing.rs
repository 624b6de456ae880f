//! How frames are told apart in a body: as server-sent events, or as lines.

use crate::connection::Streamed;
use crate::gateway::streams::Query;
use crate::stream_body::StreamBody;
use crate::wire::format::Format;
use crate::wire::json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::BytesMut;
use generate::error::ApiError;

/// How a body is cut into frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events: `data: ` and an empty line. Comments may stand between them.
    #[default]
    Events,
    /// A JSON object per line, and nothing else.
    Lines,
}

impl Framing {
    /// What a request asks for, if it does.
    ///
    /// # Errors
    /// The query names neither.
    pub(crate) fn asked(headers: &HeaderMap, query: &Query) -> Result<Option<Self>, ApiError> {
        match query.get("format") {
            Some("sse") => Ok(Some(Self::Events)),
            Some("ndjson") => Ok(Some(Self::Lines)),
            Some(_) => {
                let words = "format: must be sse or ndjson";
                Err(ApiError::field("format", "invalid_value", words))
            }
            None => Ok(accepts_events(headers).then_some(Self::Events)),
        }
    }

    /// What a request gets in this format: only lines can be had as events too.
    pub(crate) fn of(format: Format, asked: Option<Self>) -> Self {
        match format.framing() {
            Self::Events => Self::Events,
            Self::Lines => asked.unwrap_or(Self::Lines),
        }
    }

    /// Begins a frame.
    pub(crate) fn begin(self, out: &mut BytesMut) {
        if self == Self::Events {
            json::raw(out, "data: ");
        }
    }

    /// Ends one.
    pub(crate) fn end(self, out: &mut BytesMut) {
        json::raw(
            out,
            match self {
                Self::Events => "\n\n",
                Self::Lines => "\n",
            },
        );
    }

    /// A stream as an answer: the connection sends it.
    pub(crate) fn answer(self, body: StreamBody) -> Response {
        let (body, streamed) = Streamed::new(body);
        let mut response = self.carried(Body::new(body));
        response.extensions_mut().insert(streamed);
        response
    }

    /// A body of such frames as an answer.
    pub(crate) fn carried(self, body: Body) -> Response {
        let kind = match self {
            Self::Events => "text/event-stream",
            Self::Lines => "application/x-ndjson",
        };
        let mut response = Response::new(body);
        for (name, value) in [
            ("content-type", kind),
            ("cache-control", "no-cache"),
            ("x-accel-buffering", "no"),
        ] {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Whether events are named among what is accepted: `*/*` is not asking for them.
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Uri;

    #[test]
    fn lines_become_events_only_when_they_are_asked_for() {
        use Framing::{Events, Lines};
        let rows = [
            (Format::OllamaChat, "", None, Some(Lines)),
            (Format::OllamaChat, "", Some("*/*"), Some(Lines)),
            (
                Format::OllamaChat,
                "",
                Some("application/json"),
                Some(Lines),
            ),
            (
                Format::OllamaChat,
                "",
                Some("Text/Event-Stream"),
                Some(Events),
            ),
            (
                Format::OllamaGenerate,
                "",
                Some("application/json, text/event-stream;q=0.9"),
                Some(Events),
            ),
            (Format::OllamaGenerate, "?format=sse", None, Some(Events)),
            (
                Format::OllamaGenerate,
                "?format=ndjson",
                Some("text/event-stream"),
                Some(Lines),
            ),
            (Format::OllamaGenerate, "?format=xml", None, None),
            (Format::Chat, "?format=ndjson", None, Some(Events)),
        ];
        for (format, query, accept, want) in rows {
            let uri: Uri = format!("http://localhost/{query}").parse().unwrap();
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            let query = Query::of(&uri).unwrap_or_else(|e| panic!("{}", e.message));
            let asked = Framing::asked(&headers, &query).ok();
            let framing = asked.map(|asked| Framing::of(format, asked));
            assert_eq!(framing, want, "{uri} {accept:?}");
        }
    }
}
