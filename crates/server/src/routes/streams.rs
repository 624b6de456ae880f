//! `/v1/streams*`: find, watch, resume, acknowledge and stop streams.

use crate::app::App;
use crate::door;
use crate::feed;
use crate::gateway::streams::control::{Control, not_running};
use crate::gateway::streams::describe::describe;
use crate::gateway::streams::entry::Entry;
use crate::gateway::streams::query::Query;
use crate::gateway::streams::state::State as StreamState;
use crate::intake;
use crate::router::event_stream;
use crate::routes::stream_watch::Watching;
use crate::stream_response::with_stream_id;
use crate::wire::clock;
use crate::wire::cursor::{Closing, Cursor, Marks, invalid_cursor};
use crate::wire::fields::Fields;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::openai::refusal;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use generate::error::{ApiError, ErrorKind};
use generate::output::position::Position;
use std::sync::Arc;
use stream::{LIST_PAGE_MAX, ListCursor};

/// What a client that comes back was told last.
const LAST_EVENT_ID: &str = "last-event-id";
/// Streams on a page, where the caller does not say.
const LIST_PAGE: usize = 20;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/streams", get(list))
        .route("/v1/streams/feed", get(follow_all))
        .route("/v1/streams/{id}", get(one).delete(delete))
        .route("/v1/streams/{id}/events", get(watch))
        .route("/v1/streams/{id}/ack", post(acknowledge))
        .route("/v1/streams/{id}/control", post(control))
        .route("/v1/streams/{id}/pause", post(pause))
        .route("/v1/streams/{id}/resume", post(go_on))
}

/// How a stream is read once more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resume {
    /// The id of the last frame the client has.
    pub(crate) after: Option<String>,
    /// `None`: as it was opened.
    pub(crate) format: Option<Format>,
    /// `None`: as that format has it.
    pub(crate) framing: Option<Framing>,
    /// Credit follows this reader, whoever governed before.
    pub(crate) govern: bool,
}

impl Resume {
    /// From a request's header fields and query.
    pub(crate) fn parse(headers: &HeaderMap, query: &Query) -> Result<Self, ApiError> {
        let header = headers.get(LAST_EVENT_ID).map(HeaderValue::to_str);
        let header = header.transpose().map_err(|_| invalid_cursor())?;
        let format = query.get("dialect").map(|name| {
            Format::from_name(name).ok_or_else(|| {
                let known = Format::ALL.map(Format::name).join(", ");
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
            format: format.transpose()?,
            framing: Framing::asked(headers, query)?,
            govern: query.get("govern").is_some_and(|govern| govern == "1"),
        })
    }
}

/// A stream's events, from the beginning or from where a client is.
///
/// # Errors
/// The place it names was never told; the stream was refused before it began.
pub(crate) fn events(app: &App, entry: &Arc<Entry>, resume: Resume) -> Result<Response, ApiError> {
    let (opening, choices) = (entry.opening(), entry.meta().choices);
    let cursor = resume
        .after
        .map(|after| Cursor::parse(&after, entry.id(), choices).ok_or_else(invalid_cursor))
        .transpose()?;
    let format = resume.format.unwrap_or(opening.format);
    let framing = Framing::of(format, resume.framing);
    let dialect = format.dialect(entry.source(), framing, opening.reasoning_field);
    let has_everything = cursor.as_ref().is_some_and(|c| match c.closing {
        Closing::Done => true,
        Closing::Failed => dialect.after_fail().is_empty(),
        Closing::Open | Closing::Usage => false,
    });
    if has_everything {
        // EventSource stops asking at this.
        return Ok(with_stream_id(
            StatusCode::NO_CONTENT.into_response(),
            entry,
        ));
    }
    let reached = cursor.as_ref().map(|cursor| cursor.reached.clone());
    let reached = reached.unwrap_or_else(|| vec![Position::default(); choices]);
    let marks = Marks::new(entry.id(), reached).framed(framing);
    let watching = Watching {
        cursor,
        dialect,
        name: format.name(),
        govern: resume.govern,
    };
    let body = watching.body(app, entry)?.marked(marks);
    Ok(with_stream_id(framing.answer(body), entry))
}

async fn list(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(try_list(&app, &request))
}

fn try_list(app: &App, request: &Request) -> Result<Response, ApiError> {
    let caller = door::caller(request.extensions())?;
    let query = Query::of(request.uri())?;
    let after = query.number("after", u64::MAX)?.map(ListCursor);
    let limit = query.number("limit", LIST_PAGE_MAX as u64)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let page = app
        .streams
        .list(caller, after, limit.unwrap_or(LIST_PAGE).max(1));
    let now = clock::now();
    let data: Vec<_> = page.entries.iter().map(|s| describe(s, now)).collect();
    let next = page.next.map(|cursor| cursor.0);
    Ok(Json(serde_json::json!({
        "object": "list", "data": data, "has_more": next.is_some(), "next": next,
    }))
    .into_response())
}

/// The stream feed, for callers with the scope `admin`; the authentication layer checked.
async fn follow_all(State(app): State<Arc<App>>) -> Response {
    event_stream(feed::body(&app))
}

async fn one(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    answer(find(&app, &id, &request).map(|stream| shown(StatusCode::OK, &stream)))
}

async fn watch(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let mut format = None;
    let mut resumed = || {
        let stream = find(&app, &id, &request)?;
        format = Some(stream.payload.opening().format);
        let query = Query::of(request.uri())?;
        let resume = Resume::parse(request.headers(), &query)?;
        format = resume.format.or(format);
        events(&app, &stream.payload, resume)
    };
    let resumed = resumed();
    resumed.unwrap_or_else(|error| match format {
        Some(format) => format.refusal(&error),
        None => refusal::response(&error),
    })
}

/// A stream that goes on is cancelled; one that has ended is forgotten; one that is gone stays so.
async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let stream = match find(&app, &id, &request) {
        Ok(stream) => stream,
        Err(error) if error.kind == ErrorKind::Gone => {
            let gone = serde_json::json!({"object": "stream", "id": id, "state": "gone"});
            return (StatusCode::ACCEPTED, Json(gone)).into_response();
        }
        Err(error) => return refusal::response(&error),
    };
    if stream.payload.state() == StreamState::Ended {
        app.streams.forget(stream.id);
    } else {
        stream.payload.cancel();
    }
    shown(StatusCode::ACCEPTED, &stream)
}

async fn pause(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    answer(set_paused(&app, &id, &request, true))
}

async fn go_on(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    answer(set_paused(&app, &id, &request, false))
}

fn set_paused(app: &App, id: &str, request: &Request, paused: bool) -> Result<Response, ApiError> {
    let stream = find(app, id, request)?;
    if !stream.payload.pause(paused) {
        return Err(not_running());
    }
    Ok(shown(StatusCode::OK, &stream))
}

async fn control(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    answer(try_control(&app, &id, request).await)
}

async fn try_control(app: &App, id: &str, request: Request) -> Result<Response, ApiError> {
    let stream = find(app, id, &request)?;
    let (head, body) = request.into_parts();
    intake::expect_json(&head.headers)?;
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    Control::parse(&bytes)?.tell(&stream.payload)?;
    Ok(shown(StatusCode::OK, &stream))
}

async fn acknowledge(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    answer(try_acknowledge(&app, &id, request).await)
}

async fn try_acknowledge(app: &App, id: &str, request: Request) -> Result<Response, ApiError> {
    let stream = find(app, id, &request)?;
    let (head, body) = request.into_parts();
    intake::expect_json(&head.headers)?;
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let mut fields = Fields::parse(&bytes)?;
    let index = fields.integer("index", 0..=i128::from(u64::MAX));
    if fields.raw("index").is_none() {
        fields.wrong("index", "must be the number of tokens the client has");
    }
    let last = stream.payload.meta().choices.saturating_sub(1);
    let choice = fields.integer("choice", 0..=last as i128);
    fields.finish()?;
    let index = index.and_then(|index| u64::try_from(index).ok());
    let choice = choice.and_then(|choice| usize::try_from(choice).ok());
    stream.payload.acknowledge(index.unwrap_or(0), choice);
    Ok(shown(StatusCode::OK, &stream))
}

fn find(app: &App, id: &str, request: &Request) -> Result<stream::Entry<Entry>, ApiError> {
    app.streams.find(id, door::caller(request.extensions())?)
}

fn shown(status: StatusCode, stream: &stream::Entry<Entry>) -> Response {
    (status, Json(describe(stream, clock::now()))).into_response()
}

fn answer(result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|error| refusal::response(&error))
}
