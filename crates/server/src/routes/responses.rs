//! Routes under `/v1/responses`.

use crate::app::App;
use crate::door;
use crate::gateway::response_record::{self, Look, Outcome, Record};
use crate::gateway::streams::{Entry, Query, State as StreamState};
use crate::router;
use crate::routes::responses_input_tokens;
use crate::routes::stream_watch::Watching;
use crate::stream_response::with_stream_id;
use crate::wire::cursor::Marks;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::openai::refusal;
use crate::wire::responses::frames::Frames;
use crate::wire::responses::input;
use crate::wire::responses::object;
use crate::wire::responses::place;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use generate::error::{ApiError, ErrorKind};
use generate::output::position::Position;
use serde_json::json;
use std::sync::Arc;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/responses", post(create))
        .route("/v1/responses/input_tokens", post(count))
        .route("/v1/responses/{id}", get(show).delete(delete))
        .route("/v1/responses/{id}/cancel", post(cancel))
        .route("/v1/responses/{id}/input_items", get(input_items))
}

async fn create(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(try_create(app, request).await)
}

/// One in the background is told as it is now; any other when it has ended, or as it comes.
async fn try_create(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let arrival = router::arrived(&app, Format::Responses, request).await?;
    if arrival.is_streamed() {
        return arrival.answer(&app).await;
    }
    let opened = arrival.opened(&app).await?;
    if !opened.entry().meta().delivery.background {
        return Ok(app.responder.respond(opened).await);
    }
    let entry = opened.detach();
    Ok(with_stream_id(told(so_far(&entry)), &entry))
}

async fn count(State(app): State<Arc<App>>, request: Request) -> Response {
    answer(responses_input_tokens::answer(app, request).await)
}

async fn show(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    answer(try_show(&app, &id, &request))
}

fn try_show(app: &App, id: &str, request: &Request) -> Result<Response, ApiError> {
    let record = find(app, id, request)?;
    let query = Query::of(request.uri())?;
    match query.get("stream") {
        Some("true") => events(app, id, request, &query),
        None | Some("false") => Ok(match app.responses.look(&record) {
            Look::Running(entry) => with_stream_id(told(so_far(&entry)), &entry),
            Look::Ended(outcome) => told(outcome.body.clone()),
        }),
        Some(_) => {
            let words = "stream: must be true or false";
            Err(ApiError::field("stream", "invalid_value", words))
        }
    }
}

/// The response's events, from its stream, after those that the client has.
fn events(app: &App, id: &str, request: &Request, query: &Query) -> Result<Response, ApiError> {
    let after = query.number("starting_after", u64::MAX)?;
    let entry = stream(app, id, request)?;
    let cursor = after
        .map(|after| place::cursor(entry.source(), after))
        .transpose()?;
    let cursor = cursor.flatten();
    let reached = cursor.as_ref().map(|cursor| cursor.reached.clone());
    let reached = reached.unwrap_or_else(|| vec![Position::default(); entry.meta().choices]);
    let watching = Watching {
        cursor,
        dialect: Box::new(Frames::new(entry.source()).after(after)),
        name: Format::Responses.name(),
        govern: false,
    };
    let body = watching.body(app, &entry)?;
    let body = body.marked(Marks::new(entry.id(), reached));
    Ok(with_stream_id(Framing::Events.answer(body), &entry))
}

/// A response that has not ended.
fn so_far(entry: &Entry) -> Bytes {
    object::so_far(entry.source(), entry.state() == StreamState::Queued)
}

/// The stream of a response, as long as it is kept.
fn stream(app: &App, id: &str, request: &Request) -> Result<Arc<Entry>, ApiError> {
    let name = id
        .strip_prefix(crate::wire::responses::ID_PREFIX)
        .unwrap_or_default();
    let found = app.streams.find(name, door::caller(request.extensions())?);
    found.map(|stream| stream.payload).map_err(|_| {
        let words = "the events of this response are no longer kept (streams.retention_s; those of one \
                     without background end with their client); the response itself is: ask without stream";
        ApiError::caller(ErrorKind::Gone, "stream_gone", words)
    })
}

/// One that goes on is stopped, and forgotten like any other.
async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let deleted = find(&app, &id, &request).map(|record| {
        if let Look::Running(entry) = app.responses.look(&record) {
            entry.cancel();
        }
        app.responses.remove(record.id);
        forget(&app, record);
        let told = json!({"id": id, "object": "response", "deleted": true});
        axum::response::IntoResponse::into_response(Json(told))
    });
    answer(deleted)
}

/// Deletes a response; its events are deleted when the stream has ended.
fn forget(app: &Arc<App>, record: Arc<Record>) {
    let app = Arc::clone(app);
    tokio::spawn(async move {
        if let Look::Running(entry) = app.responses.look(&record) {
            response_record::ended(&entry).await;
        }
        app.streams.forget(record.id);
    });
}

async fn cancel(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    answer(match find(&app, &id, &request) {
        Ok(record) => Ok(told(stopped(&app, &record).await.body.clone())),
        Err(error) => Err(error),
    })
}

/// Stops it within one step, and waits for that. What has ended stays as it is.
async fn stopped(app: &App, record: &Arc<Record>) -> Arc<Outcome> {
    loop {
        match app.responses.look(record) {
            Look::Ended(outcome) => return outcome,
            Look::Running(entry) => {
                entry.cancel();
                response_record::ended(&entry).await;
            }
        }
    }
}

async fn input_items(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let listed = || {
        let record = find(&app, &id, &request)?;
        let page = input::page(&record.items, &Query::of(request.uri())?)?;
        Ok(told(page.into()))
    };
    answer(listed())
}

fn find(app: &App, id: &str, request: &Request) -> Result<Arc<Record>, ApiError> {
    app.responses.find(id, door::caller(request.extensions())?)
}

fn told(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn answer(result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|error| refusal::response(&error))
}
