//! `/v1/stream/{id}`: the read side of the Durable Streams protocol (durable-streams.dev) for every stream.
//!
//! ```text
//! message_reader  the messages after an offset, read from the stream's logs; a live read as server-sent events
//! ```
//!
//! A read replays the stream's logs up to the offset, as every resumed reader does, and keeps nothing.

mod message_reader;

use self::message_reader::{MessageReader, ReadState, is_recovering};
use crate::request::request_headers;
use crate::response::Rejected;
use crate::response::stream_response::{StreamResponder, with_stream_id};
use crate::routes::streams::StreamInPath;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, BytesMut};
use gateway::streams::StreamRecord;
use gateway::streams::positions::{StreamTail, stream_tail};
use generate::error::ApiError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use wire::clock;
use wire::durable_streams::message::{self, StepOffset};
use wire::item_page::Query;

/// Limit of the time that a long poll waits for a message. Proxies close requests without a response after 30 s and
/// more. The keep-alive period, if shorter, is the limit.
const LONG_POLL_MAX: Duration = Duration::from_secs(20);

/// Time after which a client may send a request again for a stream that is being recovered.
const RECOVERY_RETRY: Duration = Duration::from_secs(1);

const NEXT_OFFSET: HeaderName = HeaderName::from_static("stream-next-offset");
const UP_TO_DATE: HeaderName = HeaderName::from_static("stream-up-to-date");
const CLOSED: HeaderName = HeaderName::from_static("stream-closed");
const CURSOR: HeaderName = HeaderName::from_static("stream-cursor");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The position of the tail changes at any time.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Messages belong to one caller and may be deleted: a cache sends a request for each use, which is answered with 304.
const VALIDATED: HeaderValue = HeaderValue::from_static("private, no-cache");

/// `GET`: the messages after an offset.
pub(crate) async fn read_stream(
    State(responder): State<StreamResponder>,
    stream: StreamInPath,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Rejected> {
    let record = stream.into_record()?;
    let options = ReadOptions::parse(&Query::of(&uri)?, record.meta().choices)?;
    if options.mode == ReadMode::CatchUp || options.from == ReadFrom::Tail {
        wait_for_recovery(&record, responder.keep_alive()).await?;
    }
    if let ReadFrom::Offset(offset) = options.from {
        message_reader::wait_for_offset(&record, offset).await?;
    }
    let response = match options.mode {
        ReadMode::Events => {
            let reader = MessageReader::open(&record, start_offset(&record, options.from))?;
            message_reader::event_response(reader, options.cursor, responder.keep_alive())
        }
        ReadMode::CatchUp if options.from == ReadFrom::Tail => tail_response(&record, true),
        ReadMode::CatchUp | ReadMode::LongPoll => {
            read_once(&record, &options, &headers, responder.keep_alive()).await?
        }
    };
    Ok(with_stream_id(response, &record))
}

/// `HEAD`: the offset after the last message, and whether more will follow.
pub(crate) async fn show_tail(
    State(responder): State<StreamResponder>,
    stream: StreamInPath,
) -> Result<Response, Rejected> {
    let record = stream.into_record()?;
    wait_for_recovery(&record, responder.keep_alive()).await?;
    Ok(with_stream_id(tail_response(&record, false), &record))
}

/// Waits until the offsets of a recovered stream are known.
///
/// # Errors
/// The stream is not recovered in time.
async fn wait_for_recovery(record: &StreamRecord, keep_alive: Duration) -> Result<(), ApiError> {
    if is_recovering(record) {
        // A rejection is a message too.
        let started = timeout(keep_alive.min(LONG_POLL_MAX), record.wait_for_start()).await;
        started.map(drop).map_err(|_| {
            let message = "the stream is being recovered after a restart of the server";
            ApiError::capacity("recovering", message, RECOVERY_RETRY)
        })?;
    }
    Ok(())
}

fn start_offset(record: &StreamRecord, from: ReadFrom) -> StepOffset {
    match from {
        ReadFrom::Offset(offset) => offset,
        ReadFrom::Tail => stream_tail(record).offset,
    }
}

/// The offset of the tail without messages; with `has_body`, an empty list and whether the client is up to date.
fn tail_response(record: &StreamRecord, has_body: bool) -> Response {
    let StreamTail { offset, is_closed } = stream_tail(record);
    let mut response = if has_body {
        Body::from("[]").into_response()
    } else {
        Body::empty().into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    insert_offset(headers, &offset_text(record, offset));
    if has_body {
        headers.insert(UP_TO_DATE, TRUE);
    }
    if is_closed {
        headers.insert(CLOSED, TRUE);
    }
    response
}

/// The messages that there are after an offset; a long poll waits for the first.
async fn read_once(
    record: &Arc<StreamRecord>,
    options: &ReadOptions,
    headers: &HeaderMap,
    keep_alive: Duration,
) -> Result<Response, ApiError> {
    let start = start_offset(record, options.from);
    let mut reader = MessageReader::open(record, start)?;
    let mut messages = BytesMut::new();
    let mut state = reader.read_available(&mut messages).await?;
    let is_live = options.mode == ReadMode::LongPoll;
    if is_live && messages.is_empty() && !state.is_closed {
        let next = reader.read_next(&mut messages);
        state = timeout(keep_alive.min(LONG_POLL_MAX), next)
            .await
            .unwrap_or(Ok(state))?;
    }
    let next = reader.offset_text().to_string();
    reader.finish();
    let mut response = if is_live && messages.is_empty() {
        no_messages()
    } else {
        let tag = entity_tag(record, &offset_text(record, start), &next, state);
        message_response(&messages, tag, headers)
    };
    let headers = response.headers_mut();
    insert_offset(headers, &next);
    if state.is_up_to_date {
        headers.insert(UP_TO_DATE, TRUE);
    }
    if state.is_closed {
        headers.insert(CLOSED, TRUE);
    }
    if is_live && !state.is_closed {
        headers.insert(
            CURSOR,
            HeaderValue::from(next_cursor(options.cursor.as_deref())),
        );
    }
    Ok(response)
}

/// The response of a long poll without a message.
fn no_messages() -> Response {
    (StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, NO_STORE)]).into_response()
}

/// The messages as a list, or 304 for a client that has them.
fn message_response(messages: &[u8], tag: String, headers: &HeaderMap) -> Response {
    let mut response = if request_headers::matches_tag(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut list = BytesMut::with_capacity(messages.len() + 2);
        list.put_u8(b'[');
        list.put_slice(messages);
        list.put_u8(b']');
        let json = [
            (header::CONTENT_TYPE, JSON),
            (
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            ),
        ];
        (json, list.freeze()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, VALIDATED);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// The entity tag of the messages between two offsets; the end of the stream changes the tag.
fn entity_tag(record: &StreamRecord, start: &str, next: &str, state: ReadState) -> String {
    let closed = if state.is_closed { ":c" } else { "" };
    format!("\"{}:{start}:{next}{closed}\"", record.id())
}

fn offset_text(record: &StreamRecord, offset: StepOffset) -> String {
    offset.of_choices(record.meta().choices).to_string()
}

fn insert_offset(headers: &mut HeaderMap, offset: &str) {
    if let Ok(offset) = HeaderValue::try_from(offset) {
        headers.insert(NEXT_OFFSET, offset);
    }
}

/// The cursor after the client's. The nanoseconds of the clock are random enough: any number will do.
fn next_cursor(client: Option<&str>) -> u64 {
    let now = u64::try_from(clock::unix_s()).unwrap_or_default();
    let random = clock::wall(clock::now());
    let random = random.duration_since(std::time::UNIX_EPOCH);
    let random = random.map_or(0, |at| u64::from(at.subsec_nanos()));
    message::response_cursor(client, now, random)
}

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFrom {
    /// An offset; `-1` is the beginning.
    Offset(StepOffset),
    /// `now`: the end of the messages so far.
    Tail,
}

/// How a read waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadMode {
    /// Not at all.
    CatchUp,
    /// Until there is a message, for a limited time.
    LongPoll,
    /// Until the end of the stream, as server-sent events.
    Events,
}

/// The parameters of a read.
struct ReadOptions {
    from: ReadFrom,
    mode: ReadMode,
    /// The cursor of the client's last live read.
    cursor: Option<String>,
}

impl ReadOptions {
    /// Parses the query of a read of a stream with `choices` choices.
    ///
    /// # Errors
    /// An unknown mode; an offset that is missing, repeated or not an offset of such a stream.
    fn parse(query: &Query, choices: usize) -> Result<Self, ApiError> {
        let modes = [("long-poll", ReadMode::LongPoll), ("sse", ReadMode::Events)];
        let mode = query.one_of("live", modes)?.unwrap_or(ReadMode::CatchUp);
        let from = match query.get("offset") {
            None if mode != ReadMode::CatchUp => {
                let message =
                    "offset: a live read needs one (-1, now, or an offset of this stream)";
                return Err(ApiError::field("offset", "invalid_offset", message));
            }
            None | Some("-1") => ReadFrom::Offset(StepOffset::default()),
            Some("now") => ReadFrom::Tail,
            Some(text) => {
                let offset = StepOffset::parse(text, choices).ok_or_else(invalid_offset)?;
                ReadFrom::Offset(offset)
            }
        };
        if query.count("offset") > 1 {
            return Err(invalid_offset());
        }
        let cursor = query.get("cursor").map(str::to_owned);
        Ok(Self { from, mode, cursor })
    }
}

/// The error of an offset that the stream does not have.
fn invalid_offset() -> ApiError {
    let message = "offset: must be -1, now, or one offset that this stream has sent";
    ApiError::field("offset", "invalid_offset", message)
}
