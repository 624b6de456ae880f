//! `/v1/inference` and `/v1/jobs*`: a job is a stream; these are its routes.

use crate::app::App;
use crate::arrival;
use crate::door;
use crate::gateway::admission::Place;
use crate::gateway::open::OpenedStream;
use crate::gateway::streams::{ChoiceLog, Entry, Query, RESUMABLE, State as StreamState, Wishes};
use crate::gateway::submit::Submission;
use crate::intake;
use crate::routes::streams::{Resume, events};
use crate::stream_response::with_stream_id;
use crate::wire::clock;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::native::code::Code;
use crate::wire::native::ending::{self, Ending};
use crate::wire::native::job_id::JobId;
use crate::wire::native::{refusal, rfc3339};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use generate::error::{ApiError, ErrorKind};
use generate::output::event::Times;
use serde_json::{Value, json};
use std::sync::Arc;
use stream::StreamId;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/inference", post(inference))
        .route("/v1/jobs", post(submit))
        .route("/v1/jobs/{id}", get(show).delete(delete))
        .route("/v1/jobs/{id}/stream", get(watch))
        .route("/v1/jobs/{id}/cancel", post(cancel))
}

/// Runs a job for its client. Where it is streamed it goes on without the client, unless that said
/// it need not.
async fn inference(State(app): State<Arc<App>>, request: Request) -> Response {
    match opened(&app, request, |headers, stream| {
        let wishes = Wishes::parse(headers)?;
        let resumable = match headers.contains_key(RESUMABLE) {
            true => wishes.resumable,
            false => stream,
        };
        Ok(Wishes {
            resumable,
            ..wishes
        })
    })
    .await
    {
        Ok(opened) => app.responder.respond(opened).await,
        Err(error) => refusal::response(&error),
    }
}

/// Runs a job without a client.
async fn submit(State(app): State<Arc<App>>, request: Request) -> Response {
    match opened(&app, request, |headers, _| {
        let wishes = Wishes::parse(headers)?;
        Ok(Wishes {
            resumable: true,
            ..wishes
        })
    })
    .await
    {
        Ok(opened) => submitted(&opened.detach()),
        Err(error) => refusal::response(&error),
    }
}

async fn show(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let found = find(&app, &id, &request);
    answer(found.map(|entry| Json(described(&entry)).into_response()))
}

async fn watch(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let events = || {
        let entry = find(&app, &id, &request)?;
        let query = Query::of(request.uri())?;
        let resume = Resume::parse(request.headers(), &query)?;
        let format = Some(resume.format.unwrap_or(Format::Job));
        events(&app, &entry, Resume { format, ..resume })
    };
    answer(events())
}

/// Stops it within one step. What has ended stays as it is.
async fn cancel(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    stop(&app, &id, &request, Entry::cancel)
}

/// The same; a job that has ended is forgotten.
async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    stop(&app, &id, &request, |entry| {
        if entry.state() == StreamState::Ended {
            app.streams.forget(entry.id());
        } else {
            entry.cancel();
        }
    })
}

fn stop(app: &App, id: &str, request: &Request, stop: impl FnOnce(&Entry)) -> Response {
    match find(app, id, request) {
        Ok(entry) => {
            stop(&entry);
            (StatusCode::ACCEPTED, Json(described(&entry))).into_response()
        }
        // It was here, and is stopped for good.
        Err(error) if error.kind == ErrorKind::Gone => {
            let gone = json!({ "job_id": id, "state": "gone" });
            (StatusCode::ACCEPTED, Json(gone)).into_response()
        }
        Err(error) => refusal::response(&error),
    }
}

/// From a request's head to a stream that waits for its permit.
async fn opened(
    app: &Arc<App>,
    request: Request,
    wishes: impl FnOnce(&HeaderMap, bool) -> Result<Wishes, ApiError>,
) -> Result<OpenedStream, ApiError> {
    let (head, body) = request.into_parts();
    let caller = door::caller(&head.extensions)?;
    caller.request(clock::now())?;
    intake::expect_json(&head.headers)?;
    let deadline = intake::deadline(&head.headers)?;
    let class = intake::class(&head.headers)?;
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let submission = Submission {
        format: Format::Job,
        framing: Framing::Events,
        body: &bytes,
        class,
        deadline,
        streamed: false,
        held: arrival::find_held(app, Format::Job, &bytes).await?,
    };
    submission.open(&app.gateway, caller, |stream| wishes(&head.headers, stream))
}

/// By the name its owner gave it, or by its stream's.
fn find(app: &App, id: &str, request: &Request) -> Result<Arc<Entry>, ApiError> {
    let caller = door::caller(request.extensions())?;
    let named = || app.job_names.find(caller.owner, &JobId::parse(id)?);
    let id = match id.parse::<StreamId>() {
        Ok(_) => id.to_owned(),
        Err(_) => named().map_or_else(String::new, |id| id.to_string()),
    };
    app.streams.find(&id, caller).map(|stream| stream.payload)
}

fn submitted(entry: &Entry) -> Response {
    let told = json!({ "job_id": job_id(entry), "sse_url": sse_url(entry) });
    with_stream_id((StatusCode::ACCEPTED, Json(told)).into_response(), entry)
}

/// What a job is called where a path may need it: a stream of another format goes by its own id.
fn job_id(entry: &Entry) -> String {
    match entry.opening().format {
        Format::Job => entry.meta().response_id.clone(),
        _ => entry.id().to_string(),
    }
}

/// By the stream's id: it is good for who may see the stream, whatever the job is called.
fn sse_url(entry: &Entry) -> String {
    format!("/v1/jobs/{}/stream", entry.id())
}

fn described(entry: &Entry) -> Value {
    let started = entry.started();
    let times = started.map_or_else(Times::default, |s| Times::of(&s.engine, &s.requests));
    let tokens = started.map_or(0, |s| {
        s.choices.iter().map(ChoiceLog::answered).sum::<u64>()
    });
    let end = started.and_then(|s| s.choices.iter().find_map(|c| c.tokens.end()));
    let ending = match (entry.refused(), end) {
        (Some(error), _) => Some(refused(error)),
        (None, Some(end)) if entry.state() == StreamState::Ended => Some(ended(end, entry)),
        _ => None,
    };
    let utc = |at| rfc3339::utc(clock::wall(at));
    json!({
        "job_id": job_id(entry),
        "stream_id": entry.id().to_string(),
        "model": entry.meta().model,
        "state": entry.state().name(),
        "position": entry.place().and_then(Place::position),
        "started_at": times.started.map(utc),
        "ended_at": times.ended.map(utc),
        "tokens_out": tokens,
        "decode_time_ms": u64::try_from(times.decoding().as_millis()).unwrap_or(u64::MAX),
        "ending": ending,
        "sse_url": sse_url(entry),
    })
}

fn refused(error: &ApiError) -> Value {
    match Code::of(error) {
        Code::Cancelled => json!({ "stop_reason": "CANCELLED" }),
        code => json!({
            "code": code.name(), "message": error.message, "retriable": crate::wire::native::code::is_retriable(error),
        }),
    }
}

fn ended(end: stream::End, entry: &Entry) -> Value {
    match ending::spell(end) {
        Ending::End { reason, stop } => {
            let stop = stop.and_then(|stop| entry.meta().stops.get(usize::from(stop)));
            match stop {
                Some(stop) => json!({ "stop_reason": reason, "stop_sequence_matched": stop }),
                None => json!({ "stop_reason": reason }),
            }
        }
        Ending::Error {
            code,
            message,
            retriable,
        } => {
            json!({ "code": code.name(), "message": message, "retriable": retriable })
        }
    }
}

fn answer(result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|error| refusal::response(&error))
}
