//! Ollama's API: `/api/generate`, `/api/chat`, and the routes of its models, at `/api` and `/`.

use crate::app::App;
use crate::error_response::Rejected;
use crate::extract::GenerationRequest;
use crate::incoming_request::IncomingRequest;
use crate::routes::ollama_residence::Residence;
use crate::routes::{ollama_manage, ollama_models, ollama_unsupported};
use crate::stream_response::StreamResponder;
use crate::wire::format::Format;
use crate::wire::framing::Framing;
use crate::wire::query::Query;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::{get, post};

/// The text by which clients recognize a running server.
const ALIVE: &str = "Ollama is running (its API, spoken by Millrace)";

/// The routes.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/", get(async || ALIVE))
        .route("/api/generate", post(generate))
        .route("/api/chat", post(chat))
        .merge(ollama_models::routes())
        .merge(ollama_manage::routes())
        .merge(ollama_unsupported::routes())
}

async fn generate(
    State(responder): State<StreamResponder>,
    uri: Uri,
    headers: HeaderMap,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    respond(
        &responder,
        Format::OllamaGenerate,
        (&uri, &headers),
        request,
    )
    .await
}

async fn chat(
    State(responder): State<StreamResponder>,
    uri: Uri,
    headers: HeaderMap,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    respond(&responder, Format::OllamaChat, (&uri, &headers), request).await
}

/// Answers a request for a generation, or one that only loads or unloads the model.
async fn respond(
    responder: &StreamResponder,
    format: Format,
    (uri, headers): (&Uri, &HeaderMap),
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    let asked = Framing::requested(headers, &Query::of(uri)?)?;
    let models = &responder.gateway().models;
    let residence = Residence::of(format, &request.body)?;
    if residence.is_all() {
        return Ok(residence.answer(models, format).await?);
    }
    residence.noted(models).await;
    let request = IncomingRequest::new(format, format.framing().or_requested(asked), request);
    Ok(request.respond(responder).await?)
}
