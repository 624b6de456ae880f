//! Which handler answers what, and the one path every generation takes.

use crate::app::App;
use crate::arrival::Arrival;
use crate::door::{self, Door};
use crate::embeddings;
use crate::gateway::streams::Query;
use crate::gateway::workflows;
use crate::health;
use crate::intake;
use crate::metrics;
use crate::openapi;
use crate::paths;
use crate::realtime;
use crate::refusal;
use crate::routes::jobs;
use crate::vocabulary;
use crate::wire::anthropic;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::ollama;
use crate::wire::openai;
use crate::wire::openai::models;
use crate::wire::responses;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;

/// All routes, behind the door.
pub(crate) fn router(app: Arc<App>, door: Door) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*id}", get(one_model))
        .route("/metrics", get(metrics::show))
        .merge(crate::routes::streams::routes())
        .merge(jobs::routes())
        .merge(responses::routes())
        .merge(embeddings::routes())
        .merge(vocabulary::routes())
        .merge(openapi::routes())
        .merge(crate::routes::anthropic::routes())
        .merge(realtime::routes())
        .merge(ollama::routes())
        .merge(workflows::routes())
        .merge(health::routes())
        .fallback(async |method: Method, uri: Uri| {
            if method == Method::OPTIONS {
                return not_allowed(&uri);
            }
            let words = paths::not_found_words(uri.path());
            let error = ApiError::caller(ErrorKind::NotFound, "not_found", words);
            refusal::response(uri.path(), &error)
        })
        .method_not_allowed_fallback(async |uri: Uri| not_allowed(&uri))
        .layer(from_fn_with_state(Arc::new(door), door::enter))
        .layer(from_fn_with_state(Arc::clone(&app.metrics), metrics::count))
        .with_state(app)
}

fn not_allowed(uri: &Uri) -> Response {
    let (kind, code) = (ErrorKind::MethodNotAllowed, "method_not_allowed");
    let words = "this path does not answer to this method";
    refusal::response(uri.path(), &ApiError::caller(kind, code, words))
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    let format = Format::Chat;
    let answer = generate(app, format, request).await;
    answer.unwrap_or_else(|error| format.refusal(&error))
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    let format = Format::Completion;
    let answer = generate(app, format, request).await;
    answer.unwrap_or_else(|error| format.refusal(&error))
}

async fn list_models(State(app): State<Arc<App>>, headers: HeaderMap, uri: Uri) -> Response {
    let all = app.models.list().await;
    if !crate::routes::anthropic::is_asked(&headers) {
        return Json(models::list(&all)).into_response();
    }
    let query = Query::of(&uri);
    match query.and_then(|query| anthropic::models::page(&all, &query)) {
        Ok(page) => Json(page).into_response(),
        Err(error) => anthropic::refusal::response(&error),
    }
}

async fn one_model(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    let is_anthropic = crate::routes::anthropic::is_asked(&headers);
    match app.models.listed(Some(&id)).await {
        Ok(listed) if is_anthropic => Json(anthropic::models::card(&listed)).into_response(),
        Ok(listed) => Json(models::card(&listed)).into_response(),
        Err(error) if is_anthropic => anthropic::refusal::response(&error),
        Err(error) => openai::refusal::response(&error),
    }
}

/// The life of a request, from its head to its answer.
pub(crate) async fn generate(
    app: Arc<App>,
    format: Format,
    request: Request,
) -> Result<Response, ApiError> {
    arrived(&app, format, request).await?.answer(&app).await
}

/// The same, up to the model it needs.
pub(crate) async fn arrived(
    app: &App,
    format: Format,
    request: Request,
) -> Result<Arrival, ApiError> {
    let (head, body) = request.into_parts();
    let arrival = Arrival::of(&head, format, Framing::Events)?;
    intake::expect_json(&head.headers)?;
    let body = intake::read(&head.headers, body, &app.config.now()).await?;
    Ok(arrival.with_body(body))
}

/// A body of events as an answer.
pub(crate) fn event_stream(body: Body) -> Response {
    Framing::Events.carried(body)
}
