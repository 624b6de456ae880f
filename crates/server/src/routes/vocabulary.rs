//! `/tokenize`, `/detokenize` and `/apply-template`, compatible with llama.cpp and vLLM.
//!
//! | | llama.cpp | vLLM | here |
//! |---|---|---|---|
//! | `/tokenize` | `content`, `add_special` (off), `parse_special` (on), `with_pieces`; `tokens` | `prompt` or `messages`, `add_special_tokens` (on), `return_token_strs`; `tokens`, `count`, `max_model_len`, `token_strs` | either |
//! | `/detokenize` | `tokens`; `content` | `tokens`; `prompt` | both |
//! | `/apply-template` | `messages`, `tools`; `prompt` | | `messages`, `tools`, `add_generation_prompt` (on) |

use crate::request::extract::{JsonBody, RateLimited};
use crate::request::unadmitted_request::UnadmittedHandles;
use crate::response::error_response::Rejected;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use gateway::keys::Caller;
use gateway::models::ServedModel;
use generate::error::ApiError;
use generate::model_handle;
use generate::prompt::{PromptEncoder, TemplateArguments};
use generate::prompt_limit::PromptLimit;
use schemars::JsonSchema;
use std::sync::Arc;
use wire::fields::Fields;
use wire::protocol::Protocol;
use wire::vocabulary_request::{self, TokenizeInput};
use wire::{clock, json};

/// Parses the fields of a request, and returns the work that is offloaded.
type ParseFields = fn(Fields<'_>, &Arc<ServedModel>) -> Result<OffloadedWork, ApiError>;
type OffloadedWork = Box<dyn FnOnce() -> Result<BytesMut, ApiError> + Send>;

/// Bytes of a response; one token can take some hundred.
const RESPONSE_BYTES_MAX: usize = 32 << 20;

/// `POST /tokenize`.
pub(crate) async fn tokenize_text(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    respond(&unadmitted, (caller, body), parse_tokenize).await
}

/// `POST /detokenize`.
pub(crate) async fn detokenize_ids(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    respond(&unadmitted, (caller, body), parse_detokenize).await
}

/// `POST /apply-template`.
pub(crate) async fn apply_template(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
) -> Result<Response, Rejected> {
    respond(&unadmitted, (caller, body), parse_apply_template).await
}

async fn respond(
    unadmitted: &UnadmittedHandles,
    request: (Caller, Bytes),
    parse: ParseFields,
) -> Result<Response, Rejected> {
    let parse = |mut fields: Fields<'_>, model: &Arc<ServedModel>, _: &Caller| {
        fields.string("model"); // the model was found before
        parse(fields, model)
    };
    let answer = unadmitted
        .run_request(request, Protocol::Completion, parse)
        .await?;
    Ok(([(CONTENT_TYPE, "application/json")], answer.freeze()).into_response())
}

fn parse_tokenize(fields: Fields<'_>, model: &Arc<ServedModel>) -> Result<OffloadedWork, ApiError> {
    let request = vocabulary_request::parse_tokenize(fields)?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let encoder = prompt_encoder(&model);
        let ids = match request.input {
            TokenizeInput::Text { text, add_special } => {
                encoder.text_ids(&text, add_special, request.parse_special)?
            }
            TokenizeInput::Conversation(conversation) => {
                let add_generation_prompt = conversation.add_generation_prompt;
                let arguments = TemplateArguments {
                    tools: &conversation.tools,
                    add_generation_prompt,
                    kwargs: &conversation.kwargs,
                };
                encoder.conversation_ids(conversation.messages, arguments)?
            }
        };
        let (pieces, strings) = (request.with_pieces, request.return_token_strs);
        tokenize_response(&ids, request.field, pieces, strings, &model)
    }))
}

/// The response of `/tokenize`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Tokenized {
    count: u64,
    /// Context length of the model in tokens.
    max_model_len: u64,
    tokens: Vec<TokenOrPiece>,
    /// The text of each token, if `return_token_strs` is set.
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    token_strs: Vec<String>,
}

/// A token id, or a token id and the token's text if `with_pieces` is set.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum TokenOrPiece {
    Id(u32),
    Piece { id: u32, piece: TokenPiece },
}

/// The text of a token, or the token's bytes if these are not valid UTF-8.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum TokenPiece {
    Text(String),
    Bytes(Vec<u8>),
}

/// The response of `/detokenize`; both fields have the same text.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct Detokenized {
    content: String,
    prompt: String,
}

/// The response of `/apply-template`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct AppliedTemplate {
    prompt: String,
}

/// Writes the response of `/tokenize`.
fn tokenize_response(
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
    write_list(&mut out, field, ids, |out, &id| match pieces {
        true => write_piece(out, id, piece(id)),
        false => json::integer(out, u64::from(id)),
    })?;
    if strings {
        json::raw(&mut out, ",\"token_strs\":");
        write_list(&mut out, field, ids, |out, &id| {
            json::write(&json::Lossy(piece(id)), out);
        })?;
    }
    json::raw(&mut out, "}");
    Ok(out)
}

fn write_piece(out: &mut BytesMut, id: u32, piece: &[u8]) {
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
fn write_list(
    out: &mut BytesMut,
    field: &str,
    ids: &[u32],
    mut write_item: impl FnMut(&mut BytesMut, &u32),
) -> Result<(), ApiError> {
    json::raw(out, "[");
    for (i, id) in ids.iter().enumerate() {
        if i > 0 {
            json::raw(out, ",");
        }
        write_item(out, id);
        expect_fit(field, out)?;
    }
    json::raw(out, "]");
    Ok(())
}

fn expect_fit(field: &str, out: &BytesMut) -> Result<(), ApiError> {
    if out.len() <= RESPONSE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("{field}: the response would have more than {RESPONSE_BYTES_MAX} bytes");
    Err(ApiError::field(field, "too_long", message))
}

fn parse_detokenize(
    fields: Fields<'_>,
    model: &Arc<ServedModel>,
) -> Result<OffloadedWork, ApiError> {
    let tokenizer = &model.handle.tokenizer;
    let token_bytes = |id| tokenizer.bytes(id).map_or(0, <[u8]>::len);
    let ids = vocabulary_request::parse_detokenize(fields, tokenizer.vocab_size(), token_bytes)?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let text = model_handle::prompt_text(&model.handle.tokenizer, &ids);
        let mut out = BytesMut::with_capacity(2 * text.len() + 32);
        for (i, name) in ["{\"content\":", ",\"prompt\":"].into_iter().enumerate() {
            json::raw(&mut out, name);
            json::string(&mut out, &text);
            if i == 0 {
                expect_fit("tokens", &out)?;
            }
        }
        json::raw(&mut out, "}");
        Ok(out)
    }))
}

fn parse_apply_template(
    fields: Fields<'_>,
    model: &Arc<ServedModel>,
) -> Result<OffloadedWork, ApiError> {
    let conversation = vocabulary_request::parse_apply_template(fields)?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let room = PromptLimit::WIDEST;
        let encoder = prompt_encoder(&model);
        let messages = encoder.fit_messages(conversation.messages, &conversation.tools, false)?;
        let arguments = TemplateArguments {
            tools: &conversation.tools,
            add_generation_prompt: conversation.add_generation_prompt,
            kwargs: &conversation.kwargs,
        };
        let text = encoder.render(("messages", &messages), arguments, room)?;
        let mut out = BytesMut::with_capacity(text.len() + 16);
        json::raw(&mut out, "{\"prompt\":");
        json::string(&mut out, &text);
        json::raw(&mut out, "}");
        expect_fit("messages", &out)?;
        Ok(out)
    }))
}

fn prompt_encoder(model: &ServedModel) -> PromptEncoder<'_> {
    PromptEncoder::new(&model.handle, clock::unix_s())
}
