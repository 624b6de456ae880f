//! `POST /v1/messages/count_tokens`: a prompt is made as for an answer, and counted.

use super::message_request;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::format::Format;
use crate::prepare;
use crate::router::App;
use crate::{arrival, clock, door, intake, submit};
use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Long prompts that are counted at one time, in all: nobody holds a permit for them, and who has one must
/// find a thread that prepares.
pub(crate) const COUNTED_AT_ONCE_MAX: usize = 1;

static COUNTING: Semaphore = Semaphore::const_new(COUNTED_AT_ONCE_MAX);

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
    let serving = match held {
        Some(held) => held.serving,
        None => submit::expect_model(&mut fields, &app.models)?,
    };
    let prompt = message_request::parse_prompt(fields)?;
    let prompt = prompt.ok_or_else(|| ApiError::field("messages", "invalid_value", "is wrong"))?;
    let served = Arc::clone(&serving.model);
    let count = move || prepare::count(prompt, &served);
    let tokens = if bytes.len() <= config.inline_prompt_bytes_max {
        count()?
    } else {
        let turn = COUNTING.acquire().await.map_err(|_| uncounted())?;
        // What was begun holds its turn, also when nobody waits for it any more.
        let counted = tokio::task::spawn_blocking(move || {
            let counted = count();
            drop(turn);
            counted
        });
        counted.await.unwrap_or_else(|_| Err(uncounted()))?
    };
    Ok(Json(serde_json::json!({ "input_tokens": tokens })).into_response())
}

fn uncounted() -> ApiError {
    ApiError::ours("internal_error", "the prompt could not be counted")
}
