//! `/v1/chat/completions`, `/v1/completions`, and llama.cpp's `/completion` and `/infill`.

use crate::request::extract::GenerationRequest;
use crate::response::error_response::Rejected;
use crate::response::stream_response::StreamResponder;
use axum::extract::State;
use axum::response::Response;
use wire::framing::Framing;
use wire::protocol::Protocol;

pub(crate) async fn chat_completion(
    State(responder): State<StreamResponder>,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    generate(&responder, Protocol::Chat, request).await
}

pub(crate) async fn text_completion(
    State(responder): State<StreamResponder>,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    generate(&responder, Protocol::Completion, request).await
}

pub(crate) async fn llama_completion(
    State(responder): State<StreamResponder>,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    generate(&responder, Protocol::LlamaCompletion, request).await
}

pub(crate) async fn fill_gap(
    State(responder): State<StreamResponder>,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    generate(&responder, Protocol::Infill, request).await
}

/// A generation in a wire protocol that is framed as server-sent events.
pub(crate) async fn generate(
    responder: &StreamResponder,
    protocol: Protocol,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    let request = request.in_protocol(protocol, Framing::Sse)?;
    Ok(responder.answer(request).await?)
}
