//! Which handler answers what, and the one path every generation takes.

use crate::admission::{Admission, Bounds, Sizing};
use crate::config::ServerConfig;
use crate::door::{self, Door};
use crate::error::ApiError;
use crate::feed::Feed;
use crate::format::Format;
use crate::ident::Idents;
use crate::live_config::LiveConfig;
use crate::metrics::{self, Metrics};
use crate::native::jobs;
use crate::native::names::JobNames;
use crate::openai::{models, refusal};
use crate::readiness::Readiness;
use crate::realtime;
use crate::served::ServedModel;
use crate::streams::{self, StreamLimits, Streams, Wishes};
use crate::submit::{Submission, no_such_model};
use crate::{clock, health, intake};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use std::sync::Arc;

/// What every request can reach.
pub(crate) struct App {
    pub(crate) served: Arc<ServedModel>,
    pub(crate) config: LiveConfig,
    pub(crate) admission: Admission,
    pub(crate) streams: Arc<Streams>,
    pub(crate) feed: Feed,
    pub(crate) sockets: realtime::Sockets,
    pub(crate) job_names: JobNames,
    pub(crate) readiness: Readiness,
    pub(crate) idents: Idents,
    pub(crate) metrics: Arc<Metrics>,
}

impl App {
    /// What every request can reach.
    pub(crate) fn new(config: ServerConfig, served: Arc<ServedModel>) -> Self {
        let sizing = sizing(&config, &served);
        let feed = Feed::new();
        let streams = Streams::new(config.streams, config.retry_after, feed.clone());
        Self {
            admission: Admission::new(bounds(&config, sizing)),
            streams: Arc::new(streams),
            feed,
            sockets: realtime::Sockets::default(),
            job_names: JobNames::new(Self::names_max(&config.streams)),
            readiness: Readiness::ready(),
            idents: Idents::new(),
            metrics: Arc::default(),
            config: LiveConfig::new(config),
            served,
        }
    }

    /// Turns lengths into needs, as things stand.
    pub(crate) fn sizing(&self) -> Sizing {
        sizing(&self.config.now(), &self.served)
    }

    /// What bounds admission, as things stand.
    pub(crate) fn bounds(&self) -> Bounds {
        bounds(&self.config.now(), self.sizing())
    }

    /// Streams there can be at one time, each of which may be a job with a name.
    pub(crate) fn names_max(streams: &StreamLimits) -> usize {
        streams.open_max + streams.retained_max
    }
}

fn sizing(config: &ServerConfig, served: &ServedModel) -> Sizing {
    let dims = served.engine.dims();
    Sizing {
        page_tokens: dims.page_tokens,
        pages: dims.pages,
        context_max: served.context_max,
        reservation: config.reservation,
    }
}

fn bounds(config: &ServerConfig, sizing: Sizing) -> Bounds {
    Bounds {
        adaptive: config.adaptive_limits,
        queue: config.queue,
        open_max: config.open_requests_max,
        pages_limit: sizing.pages_limit(),
        retry_after: config.retry_after,
    }
}

/// All routes, behind the door.
pub(crate) fn router(app: Arc<App>, door: Door) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*id}", get(one_model))
        .route("/metrics", get(metrics::show))
        .merge(streams::routes())
        .merge(jobs::routes())
        .merge(realtime::routes())
        .merge(health::routes())
        .fallback(async || {
            refuse(&ApiError::caller(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is nothing at this path",
            ))
        })
        .method_not_allowed_fallback(async || {
            let words = "this path does not answer to this method";
            refuse(&ApiError::caller(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                words,
            ))
        })
        .layer(from_fn_with_state(Arc::new(door), door::enter))
        .layer(from_fn_with_state(Arc::clone(&app.metrics), metrics::count))
        .with_state(app)
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    generate(app, Format::Chat, request)
        .await
        .unwrap_or_else(|error| refuse(&error))
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    generate(app, Format::Completion, request)
        .await
        .unwrap_or_else(|error| refuse(&error))
}

async fn list_models(State(app): State<Arc<App>>) -> Response {
    Json(models::list(&app.served)).into_response()
}

async fn one_model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    if id == app.served.id {
        Json(models::card(&app.served)).into_response()
    } else {
        refuse(&no_such_model())
    }
}

/// The life of a request, from its head to its answer.
async fn generate(app: Arc<App>, format: Format, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let caller = door::caller(&head.extensions)?;
    caller.request(clock::now())?;
    intake::expect_json(&head.headers)?;
    let deadline = intake::deadline(&head.headers)?;
    let class = intake::class(&head.headers)?;
    let wishes = Wishes::parse(&head.headers)?;
    let bytes = intake::read(&head.headers, body, &app.config.now()).await?;
    let submission = Submission {
        format,
        body: &bytes,
        class,
        deadline,
        streamed: false,
    };
    let opened = submission.open(&app, caller, |_| Ok(wishes))?;
    drop(bytes);
    Ok(opened.answer().await)
}

/// A body of events as an answer.
pub(crate) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refuse(error: &ApiError) -> Response {
    refusal::response(error)
}
