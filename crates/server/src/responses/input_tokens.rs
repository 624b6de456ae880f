//! `POST /v1/responses/input_tokens`: a prompt is made as for a response, and counted.

use super::request;
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

/// How many tokens the prompt has, with what was said before it and all that the template puts around it.
pub(super) async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let (head, body) = request.into_parts();
    let caller = door::caller(&head.extensions)?;
    caller.request(clock::now())?;
    intake::expect_json(&head.headers)?;
    let config = app.config.now();
    let bytes = intake::read(&head.headers, body, &config).await?;
    let held = arrival::find_held(&app, Format::Responses, &bytes).await?;
    let mut fields = Fields::parse(&bytes)?;
    let serving = arrival::expect_held(held, &mut fields, &app)?.serving;
    let served = Arc::clone(&serving.model);
    let vocab = served.tokenizer.vocab_size();
    let history = |id: &str| app.responses.history(id, caller);
    let (ask, _) = request::parse(fields, vocab, history)?;
    let count = move || {
        let counts = ask.prompts.into_iter();
        let counts = counts.map(|prompt| prepare::count(prompt, &served));
        counts.sum::<Result<usize, ApiError>>()
    };
    let tokens = apart((bytes.len(), config.inline_prompt_bytes_max), count).await?;
    let told = serde_json::json!({"object": "response.input_tokens", "input_tokens": tokens});
    Ok(Json(told).into_response())
}
