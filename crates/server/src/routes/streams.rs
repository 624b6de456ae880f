//! `/v1/streams*`: find, watch, resume, acknowledge, update and cancel streams.

use crate::app::App;
use crate::request::extract::{Authenticated, JsonBody};
use crate::response::error_response::Rejected;
use crate::response::stream_response::{self, StreamResponder, with_stream_id};
use crate::routes::stream_watch::SubscribeOptions;
use axum::Json;
use axum::extract::{FromRef, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway::metrics::MeteredProtocol;
use gateway::owners_slot::OwnersSlot;
use gateway::streams::StreamRegistry;
use gateway::streams::StreamState;
use gateway::streams::control::{self, not_running};
use gateway::streams::describe::{Description, describe_stream};
use gateway::streams::stream_record::StreamRecord;
use generate::error::{ApiError, ErrorKind};
use generate::output::position::Position;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use stream::{LIST_PAGE_MAX, ListCursor};
use wire::acknowledgement::Acknowledgement;
use wire::clock;
use wire::control_request::ControlRequest;
use wire::cursor::{Cursor, TerminalMarker, invalid_cursor};
use wire::event_id::EventIds;
use wire::fields::Fields;
use wire::framing::Framing;
use wire::protocol::EncoderSettings;
use wire::protocol::Protocol;
use wire::query::Query;

/// The header with the last event id that a resuming client has received.
const LAST_EVENT_ID: &str = "last-event-id";
/// Streams on a page, if the request has no `limit`.
const LIST_PAGE: usize = 20;

/// Options for reading an existing stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResumeOptions {
    /// The id of the last frame that the client has received.
    pub(crate) after: Option<String>,
    /// `None`: the wire protocol of the request that opened the stream.
    pub(crate) protocol: Option<Protocol>,
    /// `None`: the default framing of the wire protocol.
    pub(crate) framing: Option<Framing>,
    /// Whether this subscriber becomes the credit owner.
    pub(crate) govern: bool,
}

impl ResumeOptions {
    /// Parses the header fields and the query of a request.
    pub(crate) fn parse(headers: &HeaderMap, query: &Query) -> Result<Self, ApiError> {
        let header = headers.get(LAST_EVENT_ID).map(HeaderValue::to_str);
        let header = header.transpose().map_err(|_| invalid_cursor())?;
        let protocol = query.get("dialect").map(|name| {
            Protocol::from_name(name).ok_or_else(|| {
                let known = Protocol::ALL.map(Protocol::name).join(", ");
                ApiError::field(
                    "dialect",
                    "invalid_value",
                    format!("must be one of {known}"),
                )
            })
        });
        let after = query.get("after").or(header);
        Ok(Self {
            after: after.filter(|id| !id.is_empty()).map(str::to_owned),
            protocol: protocol.transpose()?,
            framing: Framing::from_request(headers, query)?,
            govern: query.get("govern").is_some_and(|govern| govern == "1"),
        })
    }
}

/// The events of a stream, from the beginning or after the cursor of the client.
///
/// # Errors
/// An invalid cursor, or one beyond what was emitted; the rejection of a stream that never started.
pub(crate) fn stream_events(
    responder: &StreamResponder,
    record: &Arc<StreamRecord>,
    resume: ResumeOptions,
) -> Result<Response, ApiError> {
    let (terms, choices) = (record.terms(), record.meta().choices);
    let cursor = resume
        .after
        .map(|after| Cursor::parse(&after, record.id(), choices).ok_or_else(invalid_cursor))
        .transpose()?;
    let protocol = resume.protocol.unwrap_or(terms.protocol);
    let framing = protocol.framing().or_requested(resume.framing);
    let settings = EncoderSettings {
        reasoning_field: terms.reasoning_field,
    };
    let encoding = protocol.encoding(record.source(), framing, settings);
    let has_everything = cursor.as_ref().is_some_and(|c| match c.terminal {
        TerminalMarker::Done => true,
        TerminalMarker::Failed => !protocol.has_frame_after_error(),
        TerminalMarker::None | TerminalMarker::Usage => false,
    });
    if has_everything {
        // `EventSource` stops reconnecting on this status.
        return Ok(with_stream_id(
            StatusCode::NO_CONTENT.into_response(),
            record,
        ));
    }
    let positions = cursor.as_ref().map(|cursor| cursor.positions.clone());
    let positions = positions.unwrap_or_else(|| vec![Position::default(); choices]);
    let options = SubscribeOptions {
        cursor,
        encoding,
        protocol: MeteredProtocol::Wire(protocol),
        govern: resume.govern,
    };
    let ids = EventIds::new(record.id(), positions);
    let body = options.open_body(responder, record)?.with_ids(ids);
    Ok(with_stream_id(
        stream_response::streaming_response(body),
        record,
    ))
}

pub(crate) async fn list_streams(
    State(streams): State<Arc<StreamRegistry>>,
    State(owners): State<Arc<OwnersSlot>>,
    Authenticated(caller): Authenticated,
    uri: Uri,
) -> Result<Response, Rejected> {
    let query = Query::of(&uri)?;
    let after = query.number("after", u64::MAX)?.map(ListCursor);
    let limit = query.number("limit", LIST_PAGE_MAX as u64)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let page = streams.list_streams(&caller, after, limit.unwrap_or(LIST_PAGE).max(1));
    let now = clock::now();
    let data: Vec<_> = page
        .entries
        .iter()
        .map(|s| describe_stream(s, &owners, now))
        .collect();
    let next = page.next.map(|cursor| cursor.0);
    let page = StreamPage {
        object: "list",
        data,
        has_more: next.is_some(),
        next,
    };
    Ok(Json(page).into_response())
}

/// A page of streams.
#[derive(JsonSchema, Serialize)]
pub(crate) struct StreamPage<'a> {
    object: &'static str,
    data: Vec<Description<'a>>,
    has_more: bool,
    /// Value of the parameter `after` for the next page; `null` on the last page.
    next: Option<u64>,
}

/// A stream that was stopped and is no longer retained.
#[derive(JsonSchema, Serialize)]
pub(crate) struct StreamGone<'a> {
    object: &'static str,
    id: &'a str,
    state: &'static str,
}

/// Extractor: the stream in the path, if visible to the caller.
pub(crate) struct StreamInPath {
    id: String,
    found: Result<stream::Entry<StreamRecord>, ApiError>,
}

impl FromRequestParts<App> for StreamInPath {
    type Rejection = Response;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Response> {
        let path = Path::<String>::from_request_parts(head, app).await;
        let Path(id) = path.map_err(IntoResponse::into_response)?;
        let caller = Authenticated::from_request_parts(head, app).await;
        let Authenticated(caller) = caller.map_err(IntoResponse::into_response)?;
        let found = <Arc<StreamRegistry>>::from_ref(app).find_stream(&id, &caller);
        Ok(Self { id, found })
    }
}

impl StreamInPath {
    /// The record of the stream.
    ///
    /// # Errors
    /// The stream is unknown to the caller, or gone.
    pub(crate) fn into_record(self) -> Result<Arc<StreamRecord>, ApiError> {
        self.found.map(|found| found.payload)
    }
}

pub(crate) async fn show_stream(
    State(owners): State<Arc<OwnersSlot>>,
    stream: StreamInPath,
) -> Result<Response, Rejected> {
    Ok(described_stream(StatusCode::OK, &stream.found?, &owners))
}

pub(crate) async fn watch_stream(
    State(responder): State<StreamResponder>,
    stream: StreamInPath,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Rejected> {
    let stream = stream.found?;
    let mut protocol = stream.payload.terms().protocol;
    let mut watch = || {
        let resume = ResumeOptions::parse(&headers, &Query::of(&uri)?)?;
        protocol = resume.protocol.unwrap_or(protocol);
        stream_events(&responder, &stream.payload, resume)
    };
    // The error is written in the wire protocol of the events, not of the path.
    Ok(watch().unwrap_or_else(|error| protocol.error(&error)))
}

/// Cancels a running stream; removes an ended one.
pub(crate) async fn delete_stream(
    State(streams): State<Arc<StreamRegistry>>,
    State(owners): State<Arc<OwnersSlot>>,
    stream: StreamInPath,
) -> Result<Response, Rejected> {
    let found = match stream.found {
        Ok(found) => found,
        Err(error) if error.kind == ErrorKind::Gone => {
            let gone = StreamGone {
                object: "stream",
                id: &stream.id,
                state: "gone",
            };
            return Ok((StatusCode::ACCEPTED, Json(gone)).into_response());
        }
        Err(error) => return Err(error.into()),
    };
    if found.payload.state() == StreamState::Ended {
        streams.remove_stream(found.id);
    } else {
        found.payload.cancel();
    }
    Ok(described_stream(StatusCode::ACCEPTED, &found, &owners))
}

pub(crate) async fn pause_stream(
    State(owners): State<Arc<OwnersSlot>>,
    stream: StreamInPath,
) -> Result<Response, Rejected> {
    Ok(set_paused(&stream.found?, &owners, true).await?)
}

pub(crate) async fn resume_stream(
    State(owners): State<Arc<OwnersSlot>>,
    stream: StreamInPath,
) -> Result<Response, Rejected> {
    Ok(set_paused(&stream.found?, &owners, false).await?)
}

async fn set_paused(
    stream: &stream::Entry<StreamRecord>,
    owners: &OwnersSlot,
    paused: bool,
) -> Result<Response, ApiError> {
    if !stream.payload.pause(paused) {
        return Err(not_running());
    }
    stream.payload.wait_written().await;
    Ok(described_stream(StatusCode::OK, stream, owners))
}

pub(crate) async fn update_stream(
    State(owners): State<Arc<OwnersSlot>>,
    stream: StreamInPath,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let stream = stream.found?;
    control::apply_control(ControlRequest::parse(&body)?, &stream.payload)?;
    stream.payload.wait_written().await;
    Ok(described_stream(StatusCode::OK, &stream, &owners))
}

pub(crate) async fn acknowledge_tokens(
    State(owners): State<Arc<OwnersSlot>>,
    stream: StreamInPath,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let stream = stream.found?;
    let last = stream.payload.meta().choices.saturating_sub(1);
    let ack = Acknowledgement::parse(Fields::parse(&body)?, last)?;
    stream.payload.acknowledge(ack.index, ack.choice);
    Ok(described_stream(StatusCode::OK, &stream, &owners))
}

fn described_stream(
    status: StatusCode,
    stream: &stream::Entry<StreamRecord>,
    owners: &OwnersSlot,
) -> Response {
    let described = describe_stream(stream, owners, clock::now());
    (status, Json(described)).into_response()
}
