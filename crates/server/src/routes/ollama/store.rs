//! `/api/pull`, `/api/create`, `/api/copy`, `/api/delete`: changes of the model store.

use super::pull::{OllamaStatus, PullSlots};
use crate::config::live_config::LiveConfig;
use crate::request::extract::{JsonBody, RateLimited};
use crate::response::{Rejected, stream_response};
use crate::routes::ollama::{self, library_error, not_supported};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use gateway::models::{Library, LibraryError, ModelKeepAlive, ModelRegistry};
use generate::error::ApiError;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use wire::fields::Fields;
use wire::framing::Framing;
use wire::ollama::response_line::ErrorLine;
use wire::ollama::store_request;

pub(crate) async fn pull_model(
    State(served): State<Arc<ModelRegistry>>,
    State(slots): State<PullSlots>,
    State(config): State<Arc<LiveConfig>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let request = store_request::parse_pull(Fields::parse(&body)?)?;
    let library = Arc::clone(model_store(&served, "pulling models")?);
    let retry_after = config.now().retry_after;
    let mut lines = slots.begin_pull(served, library, request.model, retry_after)?;
    if request.is_streamed {
        let frames = stream::unfold(lines, |mut lines| async move {
            let line = lines.recv().await?;
            let line = match line {
                Ok(status) => json_line(&status),
                Err(error) => json_line(&ErrorLine::new(&error, 0)),
            };
            Some((Ok::<_, Infallible>(line), lines))
        });
        return Ok(stream_response::framed_response(
            Framing::Ndjson,
            None,
            Body::from_stream(frames),
        ));
    }
    let mut last = None;
    while let Some(line) = lines.recv().await {
        last = Some(line?);
    }
    let last = last.ok_or_else(|| ApiError::ours("internal_error", "the download was lost"))?;
    Ok(Json(last).into_response())
}

pub(crate) async fn create_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let library = Arc::clone(model_store(&served, "creating models")?);
    let request = store_request::parse_create(Fields::parse(&body)?)?;
    let is_streamed = request.is_streamed;
    change_store(&served, move || {
        library.make(&request.model, request.derived)
    })
    .await?;
    let lines = ["writing manifest", "success"].map(OllamaStatus::new);
    if !is_streamed {
        return Ok(Json(&lines[1]).into_response());
    }
    let lines: Vec<Bytes> = lines.iter().map(json_line).collect();
    Ok(stream_response::framed_response(
        Framing::Ndjson,
        None,
        Body::from(lines.concat()),
    ))
}

pub(crate) async fn copy_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let request = store_request::parse_copy(Fields::parse(&body)?)?;
    let library = Arc::clone(model_store(&served, "copying models")?);
    change_store(&served, move || {
        library.copy(&request.source, &request.destination)
    })
    .await?;
    Ok(StatusCode::OK.into_response())
}

/// Removes a model from the store. A loaded model is unloaded when its last generation has ended.
pub(crate) async fn delete_model(
    State(served): State<Arc<ModelRegistry>>,
    _: RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    let name = store_request::parse_delete(Fields::parse(&body)?)?;
    let library = Arc::clone(model_store(&served, "deleting models")?);
    let named = served.look_up(Some(&name)).await?;
    change_store(&served, move || library.delete(&name)).await?;
    let library = served.library().cloned();
    let weights = named.entry.weights.clone();
    let is_used = tokio::task::spawn_blocking(move || {
        let all = library.map(|library| library.all()).unwrap_or_default();
        all.iter().any(|local| local.weights == weights)
    });
    if !is_used.await.unwrap_or(true) {
        named.entry.set_keep(ModelKeepAlive::For(Duration::ZERO));
        served.look_again();
    }
    Ok(StatusCode::OK.into_response())
}

/// Changes the model store on a thread that may block. Names are resolved anew afterwards.
async fn change_store(
    served: &ModelRegistry,
    change: impl FnOnce() -> Result<(), LibraryError> + Send + 'static,
) -> Result<(), ApiError> {
    let done = tokio::task::spawn_blocking(change).await;
    served.forget_names();
    match done {
        Ok(done) => done.map_err(|why| library_error(&why)),
        Err(_) => Err(ApiError::ours("internal_error", "the operation failed")),
    }
}

fn model_store<'a>(
    served: &'a ModelRegistry,
    what: &str,
) -> Result<&'a Arc<dyn Library>, ApiError> {
    let library = served.library();
    library.ok_or_else(|| ollama::not_supported(what, ollama::MODELS))
}

fn json_line(line: &impl Serialize) -> Bytes {
    let mut line = wire::json::to_vec(line);
    wire::json::raw(&mut line, "\n");
    line.freeze()
}

const BLOBS: &str = "pull the model, or put its file into a directory of models";
const PUSH: &str = "this server does not upload models";

/// `POST /api/push`.
pub(crate) async fn push_model() -> Rejected {
    not_supported("pushing models", PUSH).into()
}

/// `/api/blobs/{digest}`, with any method.
pub(crate) async fn store_blob() -> Rejected {
    not_supported("storing blobs", BLOBS).into()
}
