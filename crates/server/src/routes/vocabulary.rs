//! `/tokenize`, `/detokenize` and `/apply-template`, compatible with llama.cpp and vLLM.
//!
//! | | llama.cpp | vLLM | here |
//! |---|---|---|---|
//! | `/tokenize` | `content`, `add_special` (off), `parse_special` (on), `with_pieces`; `tokens` | `prompt` or `messages`, `add_special_tokens` (on), `return_token_strs`; `tokens`, `count`, `max_model_len`, `token_strs` | either |
//! | `/detokenize` | `tokens`; `content` | `tokens`; `prompt` | both |
//! | `/apply-template` | `messages`, `tools`; `prompt` | | `messages`, `tools`, `add_generation_prompt` (on) |

use crate::request::extract::{JsonBody, RateLimited};
use crate::request::model_lookup::UnadmittedHandles;
use crate::response::Rejected;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use gateway::keys::Caller;
use gateway::models::ServedModel;
use generate::error::ApiError;
use generate::model_handle;
use generate::prompt::{PromptEncoder, TemplateArguments};
use generate::prompt_limit::PromptLimit;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use wire::clock;
use wire::fields::Fields;
use wire::json::{self, List, Lossy};
use wire::protocol::Protocol;
use wire::vocabulary_request::{self, TokenizeInput};

/// Parses the fields of a request, and returns the work that is offloaded.
pub(crate) type ParseFields = fn(Fields<'_>, &Arc<ServedModel>) -> Result<OffloadedWork, ApiError>;
pub(crate) type OffloadedWork = Box<dyn FnOnce() -> Result<BytesMut, ApiError> + Send>;

/// Bytes of a response; one token can take some hundred.
const RESPONSE_BYTES_MAX: usize = 32 << 20;

/// `POST /tokenize`, `/detokenize` and `/apply-template`, each with its parser.
pub(crate) async fn respond(
    State(unadmitted): State<UnadmittedHandles>,
    RateLimited(caller): RateLimited,
    JsonBody(body): JsonBody,
    parse: ParseFields,
) -> Result<Response, Rejected> {
    let parse = |mut fields: Fields<'_>, model: &Arc<ServedModel>, _: &Caller| {
        fields.string("model"); // the model was found before
        Ok(parse(fields, model)?)
    };
    let answer = unadmitted
        .run_request((caller, body), Protocol::Completion, parse)
        .await?;
    Ok(([(CONTENT_TYPE, "application/json")], answer.freeze()).into_response())
}

pub(crate) fn parse_tokenize(
    fields: Fields<'_>,
    model: &Arc<ServedModel>,
) -> Result<OffloadedWork, ApiError> {
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
        let bytes = |id: u32| model.handle.tokenizer.bytes(id).unwrap_or_default();
        let tokens = ids.iter().map(|&id| {
            if !request.with_pieces {
                return TokenOrPiece::Id(id);
            }
            let text = std::str::from_utf8(bytes(id));
            let piece = text.map_or(TokenPiece::Bytes(bytes(id)), TokenPiece::Text);
            TokenOrPiece::Piece { id, piece }
        });
        let texts = ids.iter().map(|&id| Lossy(bytes(id)));
        let response = Tokenized {
            count: ids.len(),
            max_model_len: model.handle.context_max,
            tokens: List(tokens),
            token_strs: request.return_token_strs.then_some(List(texts)),
        };
        to_json(request.field, &response, (1, 0))
    }))
}

/// The response of `/tokenize`, with lists of tokens and of texts.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Tokenized")]
pub(crate) struct Tokenized<T, S> {
    count: usize,
    /// Context length of the model in tokens.
    max_model_len: usize,
    tokens: T,
    /// The text of each token, if `return_token_strs` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_strs: Option<S>,
}

/// A token id, or a token id and the token's text if `with_pieces` is set.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
pub(crate) enum TokenOrPiece<'a> {
    Id(u32),
    Piece { id: u32, piece: TokenPiece<'a> },
}

/// The text of a token, or the token's bytes if these are not valid UTF-8.
#[derive(JsonSchema, Serialize)]
#[serde(untagged)]
pub(crate) enum TokenPiece<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// The response of `/detokenize`; both fields have the same text.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Detokenized<'a> {
    content: &'a str,
    prompt: &'a str,
}

/// The response of `/apply-template`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct AppliedTemplate<'a> {
    prompt: &'a str,
}

/// A response as JSON that has a text of so many bytes so many times.
///
/// # Errors
/// The response to the input in `field` would be too long.
fn to_json(
    field: &str,
    response: &impl Serialize,
    (times, bytes): (usize, usize),
) -> Result<BytesMut, ApiError> {
    let (room, bytes_max) = (times * bytes + 64, times * RESPONSE_BYTES_MAX);
    json::to_vec_within(response, room, bytes_max).ok_or_else(|| {
        let message =
            format!("{field}: the response would have more than {RESPONSE_BYTES_MAX} bytes");
        ApiError::field(field, "too_long", message)
    })
}

pub(crate) fn parse_detokenize(
    fields: Fields<'_>,
    model: &Arc<ServedModel>,
) -> Result<OffloadedWork, ApiError> {
    let tokenizer = &model.handle.tokenizer;
    let token_bytes = |id| tokenizer.bytes(id).map_or(0, <[u8]>::len);
    let ids = vocabulary_request::parse_detokenize(fields, tokenizer.vocab_size(), token_bytes)?;
    let model = Arc::clone(model);
    Ok(Box::new(move || {
        let text = model_handle::prompt_text(&model.handle.tokenizer, &ids);
        let (content, prompt) = (&*text, &*text);
        to_json("tokens", &Detokenized { content, prompt }, (2, text.len()))
    }))
}

pub(crate) fn parse_apply_template(
    fields: Fields<'_>,
    model: &Arc<ServedModel>,
) -> Result<OffloadedWork, ApiError> {
    let conversation = vocabulary_request::parse_apply_template(fields, model.takes_images())?;
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
        to_json(
            "messages",
            &AppliedTemplate { prompt: &text },
            (1, text.len()),
        )
    }))
}

fn prompt_encoder(model: &ServedModel) -> PromptEncoder<'_> {
    PromptEncoder::new(&model.handle, clock::unix_s())
}
