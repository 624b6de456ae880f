//! `POST /v1/messages/count_tokens`: a prompt is made as for an answer, and counted.

use super::message_request;
use crate::apart::apart;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::format::Format;
use crate::prepare;
use crate::router::App;
use crate::{arrival, clock, door, intake};
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// How many tokens the prompt has, with everything that the template puts around it.
pub(crate) async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let caller = door::caller(&head.extensions)?;
    caller.request(clock::now())?;
    intake::expect_json(&head.headers)?;
    let config = app.config.now();
    let bytes = intake::read(&head.headers, body, &config).await?;
    let held = arrival::find_held(&app, Format::Messages, &bytes).await?;
    let mut fields = Fields::parse(&bytes)?;
    let serving = arrival::expect_held(held, &mut fields, &app)?.serving;
    let prompt = message_request::parse_prompt(fields)?;
    let prompt = prompt.ok_or_else(|| ApiError::field("messages", "invalid_value", "is wrong"))?;
    let served = Arc::clone(&serving.model);
    let count = move || prepare::count(prompt, &served);
    let tokens = apart((bytes.len(), config.inline_prompt_bytes_max), count).await?;
    Ok(Json(serde_json::json!({ "input_tokens": tokens })).into_response())
}
