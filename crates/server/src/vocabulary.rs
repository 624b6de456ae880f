//! `/tokenize`, `/detokenize` and `/apply-template`, compatible with llama.cpp and vLLM.
//!
//! | | llama.cpp | vLLM | here |
//! |---|---|---|---|
//! | `/tokenize` | `content`, `add_special` (off), `parse_special` (on), `with_pieces`; `tokens` | `prompt` or `messages`, `add_special_tokens` (on), `return_token_strs`; `tokens`, `count`, `max_model_len`, `token_strs` | either |
//! | `/detokenize` | `tokens`; `content` | `tokens`; `prompt` | both |
//! | `/apply-template` | `messages`; `prompt` | | `messages`, `add_generation_prompt` (on) |

use crate::error_response::Rejected;
use crate::extract::{JsonBody, RateLimited};
use crate::gateway::keys::Caller;
use crate::gateway::served::ServedModel;
use crate::unadmitted::UnadmittedHandles;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use generate::error::ApiError;
use generate::prompt::{self, PromptEncoder, TemplateArguments};
use generate::prompt_limit::PromptLimit;
use serde_json::{Map, Value};
use std::sync::Arc;
use text::Message;
use wire::fields::Fields;
use wire::format::Format;
use wire::openai::chat_request;
use wire::{clock, json};

/// Parses the fields of a request, and returns the work that is offloaded.
type Read = fn(Fields<'_>, &Arc<ServedModel>) -> Result<Work, ApiError>;
type Work = Box<dyn FnOnce() -> Result<BytesMut, ApiError> + Send>;

/// Bytes of a response; one token can take some hundred.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Bytes of detokenized text.
const DETOKENIZED_BYTES_MAX: usize = 16 << 20;

/// `POST /tokenize`.
pub(crate) async fn tokenize(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    respond(&unadmitted, (caller, body), read_tokenize).await
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    respond(&unadmitted, (caller, body), read_detokenize).await
}

/// `POST /apply-template`.
pub(crate) async fn apply_template(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    respond(&unadmitted, (caller, body), read_apply_template).await
}

async fn respond(
    unadmitted: &UnadmittedHandles,
    request: (Caller, Bytes),
    read: Read,
) -> Result<Response, Rejected> {
    let read = |fields: Fields<'_>, model: &Arc<ServedModel>, _: &Caller| read(fields, model);
    let answer = unadmitted.answer(request, Format::Completion, read).await?;
    Ok(([(CONTENT_TYPE, "application/json")], answer.freeze()).into_response())
}

fn read_tokenize(mut fields: Fields<'_>, model: &Arc<ServedModel>) -> Result<Work, ApiError> {
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
    let named = ["content", "prompt", "messages"].into_iter();
    let field = named.into_iter().find(|name| fields.raw(name).is_some());
    let field = field.unwrap_or("content");
    fields.finish()?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let ids = match (text, talk) {
            (Some((text, adds)), _) => encoder(&model).text_ids(&text, adds, parsed)?,
            (None, Some((messages, kwargs, begins))) => {
                encoder(&model).conversation_ids(messages, arguments(&kwargs, begins))?
            }
            (None, None) => Vec::new(),
        };
        told(&ids, field, pieces, strings, &model)
    }))
}

/// The response of `/tokenize`, written token by token. A piece that is not UTF-8 is written as a list of bytes.
fn told(
    ids: &[u32],
    field: &str,
    pieces: bool,
    strings: bool,
    model: &ServedModel,
) -> Result<BytesMut, ApiError> {
    let piece = |id: u32| model.handle.tokenizer.bytes(id).unwrap_or_default();
    let mut out = BytesMut::new();
    json::raw(&mut out, "{\"count\":");
    json::integer(&mut out, ids.len() as u64);
    json::raw(&mut out, ",\"max_model_len\":");
    json::integer(&mut out, model.handle.context_max as u64);
    json::raw(&mut out, ",\"tokens\":");
    list(&mut out, field, ids, |out, &id| match pieces {
        true => with_piece(out, id, piece(id)),
        false => json::integer(out, u64::from(id)),
    })?;
    if strings {
        json::raw(&mut out, ",\"token_strs\":");
        list(&mut out, field, ids, |out, &id| {
            json::write(&json::Lossy(piece(id)), out);
        })?;
    }
    json::raw(&mut out, "}");
    Ok(out)
}

fn with_piece(out: &mut BytesMut, id: u32, piece: &[u8]) {
    json::raw(out, "{\"id\":");
    json::integer(out, u64::from(id));
    json::raw(out, ",\"piece\":");
    match std::str::from_utf8(piece) {
        Ok(text) => json::string(out, text),
        Err(_) => {
            for (i, &byte) in piece.iter().enumerate() {
                json::raw(out, if i == 0 { "[" } else { "," });
                json::integer(out, u64::from(byte));
            }
            json::raw(out, "]");
        }
    }
    json::raw(out, "}");
}

/// Writes a JSON list with one item per token id.
///
/// # Errors
/// The response to the input in `field` would be too long.
fn list(
    out: &mut BytesMut,
    field: &str,
    ids: &[u32],
    mut tell: impl FnMut(&mut BytesMut, &u32),
) -> Result<(), ApiError> {
    json::raw(out, "[");
    for (i, id) in ids.iter().enumerate() {
        if i > 0 {
            json::raw(out, ",");
        }
        tell(out, id);
        expect_room(field, out)?;
    }
    json::raw(out, "]");
    Ok(())
}

fn expect_room(field: &str, out: &BytesMut) -> Result<(), ApiError> {
    if out.len() <= ANSWER_BYTES_MAX {
        return Ok(());
    }
    let words = format!("{field}: the answer would have more than {ANSWER_BYTES_MAX} bytes");
    Err(ApiError::field(field, "too_long", words))
}

fn read_detokenize(mut fields: Fields<'_>, model: &Arc<ServedModel>) -> Result<Work, ApiError> {
    let vocab = model.handle.tokenizer.vocab_size();
    let ids = match fields.raw("tokens") {
        Some(raw) => fields.ids("tokens", raw, vocab),
        None => {
            fields.wrong("tokens", "is required");
            None
        }
    };
    let bytes = |&id: &u32| model.handle.tokenizer.bytes(id).map_or(0, <[u8]>::len);
    let bytes: usize = ids.iter().flatten().map(bytes).sum();
    if bytes > DETOKENIZED_BYTES_MAX {
        let words = format!("stand for {bytes} bytes; at most {DETOKENIZED_BYTES_MAX} are told");
        fields.wrong("tokens", words);
    }
    fields.finish()?;
    let ids = ids.unwrap_or_default();
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let text = prompt::decode(&model.handle.tokenizer, &ids);
        let mut out = BytesMut::with_capacity(2 * text.len() + 32);
        for (i, name) in ["{\"content\":", ",\"prompt\":"].into_iter().enumerate() {
            json::raw(&mut out, name);
            json::string(&mut out, &text);
            if i == 0 {
                expect_room("tokens", &out)?;
            }
        }
        json::raw(&mut out, "}");
        Ok(out)
    }))
}

fn read_apply_template(mut fields: Fields<'_>, model: &Arc<ServedModel>) -> Result<Work, ApiError> {
    let (messages, kwargs, begins) = conversation(&mut fields);
    fields.finish()?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let room = PromptLimit::WIDEST;
        let encoder = encoder(&model);
        let messages = encoder.add_tools(messages, &[], false)?;
        let text = encoder.render(("messages", &messages), arguments(&kwargs, begins), room)?;
        let mut out = BytesMut::with_capacity(text.len() + 16);
        json::raw(&mut out, "{\"prompt\":");
        json::string(&mut out, &text);
        json::raw(&mut out, "}");
        expect_room("messages", &out)?;
        Ok(out)
    }))
}

fn encoder(model: &ServedModel) -> PromptEncoder<'_> {
    PromptEncoder::new(&model.handle, clock::unix_s())
}

fn arguments(kwargs: &Map<String, Value>, begins: bool) -> TemplateArguments<'_> {
    TemplateArguments {
        tools: &[],
        add_generation_prompt: begins,
        kwargs,
    }
}

/// The messages, the arguments of the chat template, and whether the generation prompt is added.
fn conversation(fields: &mut Fields<'_>) -> (Vec<Message>, Map<String, Value>, bool) {
    let messages = chat_request::messages(fields);
    let kwargs = chat_request::kwargs(fields);
    let begins = fields.boolean("add_generation_prompt").unwrap_or(true);
    (messages, kwargs, begins)
}
