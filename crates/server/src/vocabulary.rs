//! `/tokenize`, `/detokenize` and `/apply-template`: what a model makes of text, as llama.cpp and vLLM serve it.
//!
//! | | llama.cpp | vLLM | here |
//! |---|---|---|---|
//! | `/tokenize` | `content`, `add_special` (off), `parse_special` (on), `with_pieces`; `tokens` | `prompt` or `messages`, `add_special_tokens` (on), `return_token_strs`; `tokens`, `count`, `max_model_len`, `token_strs` | either |
//! | `/detokenize` | `tokens`; `content` | `tokens`; `prompt` | both |
//! | `/apply-template` | `messages`; `prompt` | | `messages`, `add_generation_prompt` (on) |

use crate::error::ApiError;
use crate::fields::Fields;
use crate::format::Format;
use crate::keys::Caller;
use crate::openai::{chat_request, control, refusal};
use crate::router::App;
use crate::served::ServedModel;
use crate::{permitless, prepare};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use text::Message;

/// Reads fields for a model, and gives the work that is left to do.
type Read = fn(Fields<'_>, &Arc<ServedModel>) -> Result<Work, ApiError>;
type Work = Box<dyn FnOnce() -> Result<Value, ApiError> + Send>;

/// The routes.
pub(crate) fn routes() -> Router<Arc<App>> {
    let route = |read: Read| {
        post(
            async move |State(app): State<Arc<App>>, request: Request| -> Response {
                let read =
                    |fields: Fields<'_>, model: &Arc<ServedModel>, _: &Caller| read(fields, model);
                let told = permitless::answer(&app, request, Format::Completion, read).await;
                told.map_or_else(
                    |error| refusal::response(&error),
                    |told| Json(told).into_response(),
                )
            },
        )
    };
    Router::new()
        .route("/tokenize", route(tokenize))
        .route("/detokenize", route(detokenize))
        .route("/apply-template", route(apply_template))
}

fn tokenize(mut fields: Fields<'_>, model: &Arc<ServedModel>) -> Result<Work, ApiError> {
    let special = fields.boolean("add_special_tokens");
    let added = special.or_else(|| fields.boolean("add_special"));
    let parsed = fields.boolean("parse_special").unwrap_or(true);
    let pieces = fields.boolean("with_pieces").unwrap_or(false);
    let strings = fields.boolean("return_token_strs").unwrap_or(false);
    let text = fields.string("content").map(|text| (text, false));
    let text = text.or_else(|| fields.string("prompt").map(|text| (text, true)));
    let text = text.map(|(text, adds)| (text.into_owned(), added.unwrap_or(adds)));
    let talk = match (&text, fields.raw("messages")) {
        (Some(_), None) => None,
        (None, Some(_)) => Some(conversation(&mut fields)),
        _ => {
            fields.wrong(
                "content",
                "is required, or prompt, or messages: one of them",
            );
            None
        }
    };
    fields.finish()?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let ids = match (text, talk) {
            (Some((text, adds)), _) => prepare::plain_ids(&text, adds, parsed, &model)?,
            (None, Some((messages, kwargs, begins))) => {
                prepare::rendered_ids(messages, &[], begins, &kwargs, &model)?
            }
            (None, None) => Vec::new(),
        };
        Ok(told(&ids, pieces, strings, &model))
    }))
}

fn told(ids: &[u32], pieces: bool, strings: bool, model: &ServedModel) -> Value {
    let piece = |id: u32| model.tokenizer.bytes(id).unwrap_or_default();
    // What is no text by itself is told as its bytes.
    let with_piece = |&id: &u32| match std::str::from_utf8(piece(id)) {
        Ok(text) => json!({"id": id, "piece": text}),
        Err(_) => json!({"id": id, "piece": piece(id)}),
    };
    let mut told = json!({"count": ids.len(), "max_model_len": model.context_max});
    told["tokens"] = match pieces {
        true => ids.iter().map(with_piece).collect(),
        false => json!(ids),
    };
    if strings {
        let text = |&id: &u32| String::from_utf8_lossy(piece(id)).into_owned();
        told["token_strs"] = ids.iter().map(text).collect();
    }
    told
}

fn detokenize(mut fields: Fields<'_>, model: &Arc<ServedModel>) -> Result<Work, ApiError> {
    let vocab = model.tokenizer.vocab_size();
    let Some(items) = fields.array("tokens", usize::MAX) else {
        if fields.raw("tokens").is_none() {
            fields.wrong("tokens", "is required");
        }
        return Err(fields.finish().err().unwrap_or_else(nothing_wrong));
    };
    let mut ids = Vec::with_capacity(items.len());
    for (i, raw) in items.into_iter().enumerate() {
        match control::token_id(raw, vocab) {
            Some(id) => ids.push(id),
            None => fields.wrong(format!("tokens[{i}]"), control::token_id_words(vocab)),
        }
    }
    fields.finish()?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let text = prepare::decode(&model.tokenizer, &ids);
        Ok(json!({"content": text, "prompt": text}))
    }))
}

fn apply_template(mut fields: Fields<'_>, model: &Arc<ServedModel>) -> Result<Work, ApiError> {
    let (messages, kwargs, begins) = conversation(&mut fields);
    fields.finish()?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let text = prepare::render(("messages", &messages), &[], begins, &kwargs, &model)?;
        Ok(json!({"prompt": text}))
    }))
}

/// The messages, what else the template is given, and whether the answer's beginning follows.
fn conversation(fields: &mut Fields<'_>) -> (Vec<Message>, Map<String, Value>, bool) {
    let messages = chat_request::messages(fields);
    let kwargs = chat_request::kwargs(fields);
    let begins = fields.boolean("add_generation_prompt").unwrap_or(true);
    (messages, kwargs, begins)
}

fn nothing_wrong() -> ApiError {
    ApiError::ours("internal_error", "the request was refused for nothing")
}
