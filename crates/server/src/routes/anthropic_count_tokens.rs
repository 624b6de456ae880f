//! `POST /v1/messages/count_tokens`: a prompt is made as for an answer, and counted.

use crate::app::App;
use crate::permitless;
use crate::wire::anthropic::message_request;
use crate::wire::clock;
use crate::wire::format::Format;
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use generate::error::ApiError;
use generate::prompt::PromptEncoder;
use std::sync::Arc;

/// How many tokens the prompt has, with everything that the template puts around it.
pub(crate) async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let count = permitless::answer(&app, request, Format::Messages, |fields, model, _| {
        let prompt = message_request::parse_prompt(fields)?;
        let prompt =
            prompt.ok_or_else(|| ApiError::field("messages", "invalid_value", "is wrong"))?;
        let model = Arc::clone(model);
        Ok(move || {
            let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
            encoder.prompt_ids(prompt).map(|ids| ids.len())
        })
    });
    let tokens = count.await?;
    Ok(Json(serde_json::json!({ "input_tokens": tokens })).into_response())
}
