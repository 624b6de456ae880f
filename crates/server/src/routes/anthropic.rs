//! `/v1/messages` and `/v1/messages/count_tokens`.

use crate::request::extract::{GenerationRequest, JsonBody, RateLimited};
use crate::request::unadmitted_request::UnadmittedHandles;
use crate::response::error_response::Rejected;
use crate::response::stream_response::StreamResponder;
use crate::routes::generation;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use generate::error::ApiError;
use generate::prompt::PromptEncoder;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use wire::anthropic::message_request;
use wire::clock;
use wire::protocol::Protocol;

/// The header that clients of Anthropic's API send.
const VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Whether a request to a path of several APIs comes from a client of Anthropic's.
pub(crate) fn is_anthropic_client(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION)
}

pub(crate) async fn create_message(
    State(responder): State<StreamResponder>,
    request: GenerationRequest,
) -> Result<Response, Rejected> {
    generation::generate(&responder, Protocol::Messages, request).await
}

/// Counts the tokens of the prompt that the request would have, with the text of the chat template.
pub(crate) async fn count_tokens(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Json<MessageTokenCount>, Rejected> {
    let request = (caller, body);
    let count = unadmitted.run_request(request, Protocol::Messages, |fields, model, _| {
        let prompt = message_request::parse_prompt(fields)?;
        let prompt =
            prompt.ok_or_else(|| ApiError::field("messages", "invalid_value", "is wrong"))?;
        let model = Arc::clone(model);
        Ok(move || {
            let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
            encoder.prompt_ids(prompt).map(|ids| ids.len())
        })
    });
    Ok(Json(MessageTokenCount {
        input_tokens: count.await?,
    }))
}

/// The number of tokens in a prompt.
#[derive(JsonSchema, Serialize)]
pub(crate) struct MessageTokenCount {
    input_tokens: usize,
}
