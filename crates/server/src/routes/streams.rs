//! `/v1/streams*`: find, watch, resume, acknowledge, update and cancel streams.

use crate::access::authentication;
use crate::app::App;
use crate::request::extract::{AskedId, JsonBody};
use crate::response::Rejected;
use crate::response::stream_body::StreamBody;
use crate::response::stream_response::{self, StreamResponder, with_stream_id};
use axum::Json;
use axum::extract::{FromRef, FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use gateway::generation::Generation;
use gateway::metrics::{MeteredProtocol, MeteredRequest};
use gateway::owners_slot::OwnersSlot;
use gateway::streams::control::{self, not_running};
use gateway::streams::describe::describe_stream;
use gateway::streams::positions::wait_for_positions;
use gateway::streams::{StreamRecord, StreamRegistry, StreamState, Subscriber};
use generate::error::{ApiError, ErrorKind};
use generate::output::position::Position;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use wire::clock;
use wire::control_request::{Acknowledgement, ControlRequest};
use wire::cursor::{Cursor, EventIds, TerminalMarker, invalid_cursor};
use wire::fields::Fields;
use wire::framing::Framing;
use wire::item_page::Query;
use wire::protocol::{EncoderSettings, Encoding, Protocol};

/// The header with the last event id that a resuming client has received.
const LAST_EVENT_ID: &str = "last-event-id";

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
pub(crate) async fn stream_events(
    responder: &StreamResponder,
    record: &Arc<StreamRecord>,
    resume: ResumeOptions,
) -> Result<Response, ApiError> {
    let (terms, choices) = (record.terms(), record.meta().choices);
    let cursor = resume
        .after
        .map(|after| Cursor::parse(&after, record.id(), choices).ok_or_else(invalid_cursor))
        .transpose()?;
    if let Some(cursor) = &cursor {
        wait_decided(record, cursor).await;
    }
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
    /// This instance; `None` without a cluster.
    instance: Option<String>,
    owners: Arc<OwnersSlot>,
    /// Name of the key that opened the stream, if the caller may know it.
    key: Option<String>,
    found: Result<stream::Entry<StreamRecord>, ApiError>,
}

impl FromRequestParts<App> for StreamInPath {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Rejected> {
        let AskedId { id, caller } = AskedId::from_request_parts(head, app).await?;
        let found = <Arc<StreamRegistry>>::from_ref(app).find_stream(&id, &caller);
        let instance = app.peer_calls.peers.own_name();
        let key = found.as_ref().ok().and_then(|found| {
            authentication::owner_name(&head.extensions, found.payload.terms().owner)
        });
        Ok(Self {
            id,
            instance,
            key,
            owners: Arc::clone(&app.gateway.owners),
            found,
        })
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

    /// The stream with what describes it.
    ///
    /// # Errors
    /// As [`StreamInPath::into_record`].
    fn into_entry(self) -> Result<StreamHere, ApiError> {
        Ok(StreamHere {
            entry: self.found?,
            instance: self.instance,
            owners: self.owners,
            key: self.key,
        })
    }
}

/// A stream of this instance.
struct StreamHere {
    entry: stream::Entry<StreamRecord>,
    /// This instance; `None` without a cluster.
    instance: Option<String>,
    owners: Arc<OwnersSlot>,
    /// Name of the key that opened the stream, if the caller may know it.
    key: Option<String>,
}

impl StreamHere {
    fn described(self, status: StatusCode) -> Response {
        let description = describe_stream(&self.entry, &self.owners, clock::now()).of_key(self.key);
        (status, Json(description.at_instance(self.instance))).into_response()
    }
}

pub(crate) async fn show_stream(stream: StreamInPath) -> Result<Response, Rejected> {
    Ok(stream.into_entry()?.described(StatusCode::OK))
}

pub(crate) async fn watch_stream(
    State(responder): State<StreamResponder>,
    stream: StreamInPath,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Rejected> {
    let stream = stream.found?;
    let mut protocol = stream.payload.terms().protocol;
    let watched = async {
        let resume = ResumeOptions::parse(&headers, &Query::of(&uri)?)?;
        protocol = resume.protocol.unwrap_or(protocol);
        stream_events(&responder, &stream.payload, resume).await
    };
    let watched = watched.await;
    // The error is written in the wire protocol of the events, not of the path.
    Ok(watched.unwrap_or_else(|error| protocol.error(&error)))
}

/// Cancels a running stream; removes an ended one.
pub(crate) async fn delete_stream(
    State(streams): State<Arc<StreamRegistry>>,
    stream: StreamInPath,
) -> Result<Response, Rejected> {
    let id = stream.id.clone();
    let found = match stream.into_entry() {
        Ok(found) => found,
        Err(error) if error.kind == ErrorKind::Gone => {
            let gone = StreamGone {
                object: "stream",
                id: &id,
                state: "gone",
            };
            return Ok((StatusCode::ACCEPTED, Json(gone)).into_response());
        }
        Err(error) => return Err(error.into()),
    };
    if found.entry.payload.state() == StreamState::Ended {
        let forgotten = streams.forget_stream(&found.entry.payload);
        forgotten.written().await;
    } else {
        found.entry.payload.cancel_written().await;
    }
    Ok(found.described(StatusCode::ACCEPTED))
}

pub(crate) async fn pause_stream(stream: StreamInPath) -> Result<Response, Rejected> {
    Ok(set_paused(stream.into_entry()?, true).await?)
}

pub(crate) async fn resume_stream(stream: StreamInPath) -> Result<Response, Rejected> {
    Ok(set_paused(stream.into_entry()?, false).await?)
}

async fn set_paused(stream: StreamHere, paused: bool) -> Result<Response, ApiError> {
    let record = &stream.entry.payload;
    if !record.pause(paused) {
        return Err(not_running());
    }
    record.wait_written().await;
    Ok(stream.described(StatusCode::OK))
}

pub(crate) async fn update_stream(
    stream: StreamInPath,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let stream = stream.into_entry()?;
    let record = &stream.entry.payload;
    control::apply_control(ControlRequest::parse(&body)?, record)?;
    record.wait_written().await;
    Ok(stream.described(StatusCode::OK))
}

/// Acknowledges tokens, or the end: a stream whose end is acknowledged is not unread, also after a restart.
pub(crate) async fn acknowledge_stream(
    stream: StreamInPath,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let stream = stream.into_entry()?;
    let record = &stream.entry.payload;
    let last = record.meta().choices.saturating_sub(1);
    let ack = Acknowledgement::parse(Fields::parse(&body)?, last)?;
    if let Some(index) = ack.index {
        record.acknowledge(index, ack.choice);
    }
    if ack.end {
        if record.state() != StreamState::Ended {
            return Err(not_ended().into());
        }
        record.note_end_read();
        record.wait_written().await;
    }
    Ok(stream.described(StatusCode::OK))
}

fn not_ended() -> ApiError {
    let words = "end: the stream has not ended";
    ApiError::caller(ErrorKind::Conflict, "stream_not_ended", words)
}

/// Time in which the head of a response waits until it is known whether a stream that was taken over continues. After that the
/// answer is given within the response.
const DECISION_WAIT: Duration = Duration::from_secs(10);

/// Waits until it is known whether a stream continues that was taken over, of which the client has a part.
async fn wait_decided(record: &StreamRecord, cursor: &Cursor) {
    let has_part = cursor.positions.iter().any(|known| known.begun() > 0);
    if has_part && record.is_taken_over() {
        let _ = timeout(DECISION_WAIT, record.wait_for_outcome()).await;
    }
}

/// How a subscriber reads a stream.
pub(crate) struct SubscribeOptions {
    /// The position to resume from; `None` for the beginning.
    pub(crate) cursor: Option<Cursor>,
    pub(crate) encoding: Encoding,
    pub(crate) protocol: MeteredProtocol,
    /// Whether this subscriber becomes the credit owner.
    pub(crate) govern: bool,
}

impl SubscribeOptions {
    /// The body with the stream's events.
    ///
    /// # Errors
    /// A cursor beyond what was emitted; the rejection of a stream that never started.
    pub(crate) fn open_body(
        self,
        responder: &StreamResponder,
        record: &Arc<StreamRecord>,
    ) -> Result<StreamBody, ApiError> {
        if let Some(error) = record.rejection() {
            return Err(error.clone());
        }
        let keep_alive = responder.keep_alive();
        let metered = MeteredRequest {
            protocol: self.protocol,
            stream: true,
            attached: true,
            arrived: clock::now(),
        };
        let (govern, metrics) = (self.govern, Arc::clone(responder.metrics()));
        let cursor = self.cursor.clone();
        cursor
            .iter()
            .try_for_each(|cursor| record.expect_no_loss(cursor))?;
        let known = self.cursor.as_ref().map(|cursor| cursor.positions.clone());
        let is_behind = known.as_ref().is_some_and(|known| record.is_behind(known));
        let body = if record.started().is_some() && !is_behind {
            let generation = attach_subscriber(record, known.as_deref(), govern)?
                .with_metrics(&metrics, metered);
            StreamBody::new(generation, self.encoding, keep_alive)
        } else {
            let has_part = known.iter().flatten().any(|known| known.begun() > 0);
            if has_part && !record.is_recovered() {
                return Err(invalid_cursor());
            }
            let images = record.follow_images();
            let (record, place) = (Arc::clone(record), record.queue_position().cloned());
            let pending = async move {
                record.wait_for_start().await?;
                if let Some(cursor) = &cursor {
                    if record.is_behind(&cursor.positions) {
                        wait_for_positions(&record, &cursor.positions).await;
                    }
                    record.expect_no_loss(cursor)?;
                }
                Ok(attach_subscriber(&record, known.as_deref(), govern)?
                    .with_metrics(&metrics, metered))
            };
            let body = StreamBody::waiting(Box::pin(pending), place, self.encoding, keep_alive);
            body.with_images(images)
        };
        Ok(match &self.cursor {
            Some(cursor) => body.resumed(cursor),
            None => body,
        })
    }
}

fn attach_subscriber(
    record: &Arc<StreamRecord>,
    known: Option<&[Position]>,
    govern: bool,
) -> Result<Generation, ApiError> {
    let subscriber = if govern {
        Subscriber::opening(record)
    } else {
        Subscriber::joining(record)
    };
    Generation::attach(subscriber, known).ok_or_else(invalid_cursor)
}
