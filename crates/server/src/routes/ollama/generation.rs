//! Ollama's API: `/api/generate`, `/api/chat`, and the routes of its models, at `/api` and `/`.

use crate::request::extract::GenerationRequest;
use crate::response::error_response::Rejected;
use crate::routes::ollama::residence::ResidenceRequest;

use crate::response::stream_response::StreamResponder;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::query::Query;

/// The text by which clients recognize a running server.
pub(crate) const ALIVE: &str = "Ollama is running (its API, spoken by Millrace)";

pub(crate) async fn generate_text(
    State(responder): State<StreamResponder>,
    uri: Uri,
    headers: HeaderMap,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    respond(
        &responder,
        Protocol::OllamaGenerate,
        (&uri, &headers),
        request,
    )
    .await
}

pub(crate) async fn chat_message(
    State(responder): State<StreamResponder>,
    uri: Uri,
    headers: HeaderMap,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    respond(&responder, Protocol::OllamaChat, (&uri, &headers), request).await
}

/// Answers a request for a generation, or one that only loads or unloads the model.
async fn respond(
    responder: &StreamResponder,
    protocol: Protocol,
    (uri, headers): (&Uri, &HeaderMap),
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    let requested = Framing::from_request(headers, &Query::of(uri)?)?;
    let models = &responder.gateway().models;
    let framing = protocol.framing().or_requested(requested);
    let scopes = request.caller.scopes;
    let request = request.in_protocol(protocol, framing)?;
    let residence = ResidenceRequest::of(protocol, request.body.fields())?;
    if residence.is_without_prompt() {
        return Ok(residence.load_or_unload(models, protocol, scopes).await?);
    }
    residence.apply_keep_alive(models, scopes).await;
    Ok(responder.answer(request).await?)
}
