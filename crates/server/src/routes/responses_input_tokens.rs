//! `POST /v1/responses/input_tokens`: a prompt is made as for a response, and counted.

use crate::app::App;
use crate::permitless;
use crate::wire::clock;
use crate::wire::format::Format;
use crate::wire::responses::request;
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use generate::error::ApiError;
use generate::prompt::PromptEncoder;
use std::sync::Arc;

/// How many tokens the prompt has, with what was said before it and all that the template puts around it.
pub(crate) async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let count = permitless::answer(&app, request, Format::Responses, |fields, model, caller| {
        let history = |id: &str| app.responses.history(id, caller);
        let (ask, _) = request::parse(fields, model.handle.tokenizer.vocab_size(), history)?;
        let model = Arc::clone(model);
        Ok(move || {
            let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
            let counts = ask.prompts.into_iter();
            let counts = counts.map(|prompt| encoder.prompt_ids(prompt).map(|ids| ids.len()));
            counts.sum::<Result<usize, ApiError>>()
        })
    });
    let tokens = count.await?;
    let told = serde_json::json!({"object": "response.input_tokens", "input_tokens": tokens});
    Ok(Json(told).into_response())
}
