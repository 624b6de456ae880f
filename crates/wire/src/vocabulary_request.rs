//! Parsers of `/tokenize`, `/detokenize` and `/apply-template`.

use crate::fields::Fields;
use crate::fields::bounds::IDS_MAX;
use crate::fields::recorder::token_id_schema;
use crate::shared::images::{TEXT_MESSAGE, write_markers};
use crate::shared::messages;
use crate::tool_definitions;
use generate::error::ApiError;
use serde_json::{Map, Value, json};
use text::Message;

/// Bytes of detokenized text.
const DETOKENIZED_BYTES_MAX: usize = 16 << 20;

/// A request to `/tokenize`.
#[derive(Debug)]
pub struct TokenizeRequest {
    /// The text or conversation.
    pub input: TokenizeInput,
    /// Name of the field with the input.
    pub field: &'static str,
    /// Whether special tokens in a text are tokens.
    pub parse_special: bool,
    /// Whether each token is returned with its text or bytes.
    pub with_pieces: bool,
    /// Whether the texts of the tokens are returned as a list.
    pub return_token_strs: bool,
}

/// The input of `/tokenize`.
#[derive(Debug)]
pub enum TokenizeInput {
    /// A text.
    Text {
        /// The text.
        text: String,
        /// Whether special tokens are added at the beginning and end.
        add_special: bool,
    },
    /// A conversation, which the chat template renders.
    Conversation(ConversationRequest),
}

/// A request to `/apply-template`: a conversation and the arguments of the chat template.
#[derive(Debug)]
pub struct ConversationRequest {
    /// At least one message.
    pub messages: Vec<Message>,
    /// Tool definitions in OpenAI's shape.
    pub tools: Vec<Value>,
    /// Variables of the chat template.
    pub kwargs: Map<String, Value>,
    /// Whether the generation prompt is added.
    pub add_generation_prompt: bool,
}

/// Parses a request to `/tokenize`.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_tokenize(mut fields: Fields<'_>) -> Result<TokenizeRequest, ApiError> {
    let special = fields.boolean("add_special_tokens");
    let added = special.or_else(|| fields.boolean("add_special"));
    let parse_special = fields.boolean("parse_special").unwrap_or(true);
    let with_pieces = fields.boolean("with_pieces").unwrap_or(false);
    let return_token_strs = fields.boolean("return_token_strs").unwrap_or(false);
    let input = parse_input(&mut fields, added);
    let mut named = ["content", "prompt", "messages"].into_iter();
    let field = named.find(|name| fields.raw(name).is_some());
    let field = field.unwrap_or("content");
    fields.finish()?;
    Ok(TokenizeRequest {
        input,
        field,
        parse_special,
        with_pieces,
        return_token_strs,
    })
}

/// Parses llama.cpp's `content`, or vLLM's `prompt` or `messages`. Special tokens are added to `prompt` by default.
fn parse_input(fields: &mut Fields<'_>, add_special: Option<bool>) -> TokenizeInput {
    let text = fields.string("content").map(|text| (text, false));
    let text = text.or_else(|| fields.string("prompt").map(|text| (text, true)));
    match (text, fields.raw("messages")) {
        (Some((text, adds)), None) => TokenizeInput::Text {
            text: text.into_owned(),
            add_special: add_special.unwrap_or(adds),
        },
        (None, Some(_)) => TokenizeInput::Conversation(parse_conversation(fields)),
        _ => {
            fields.reject(
                "content",
                "is required, or prompt, or messages: one of them",
            );
            TokenizeInput::Text {
                text: String::new(),
                add_special: false,
            }
        }
    }
}

/// Parses a request to `/detokenize`; `token_bytes` is the number of bytes of a token.
///
/// # Errors
/// All invalid fields at once; tokens with more bytes of text than a response may have.
pub fn parse_detokenize(
    mut fields: Fields<'_>,
    vocab_size: usize,
    token_bytes: impl Fn(u32) -> usize,
) -> Result<Vec<u32>, ApiError> {
    let tokens = fields.described(
        "tokens",
        || json!({"type": "array", "items": token_id_schema(), "maxItems": IDS_MAX}),
    );
    let ids = match tokens {
        Some(raw) => fields.ids("tokens", raw, vocab_size),
        None => fields.no_value("tokens", "is required"),
    };
    let ids = ids.unwrap_or_default();
    let bytes: usize = ids.iter().map(|&id| token_bytes(id)).sum();
    if bytes > DETOKENIZED_BYTES_MAX {
        let error_message =
            format!("stand for {bytes} bytes; at most {DETOKENIZED_BYTES_MAX} are returned");
        fields.reject("tokens", error_message);
    }
    fields.finish()?;
    Ok(ids)
}

/// Parses a request to `/apply-template`. The prompt of a model that `takes_images` has llama.cpp's marker
/// in the place of each image, at whose bytes nothing looks.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_apply_template(
    fields: Fields<'_>,
    takes_images: bool,
) -> Result<ConversationRequest, ApiError> {
    let mut fields = fields.fetching_images();
    let mut conversation = read_conversation(&mut fields);
    if takes_images && !fields.take_images().is_empty() {
        let contents = conversation.messages.iter_mut();
        contents.for_each(|message| write_markers(&mut message.content));
    }
    fields.reject_images(TEXT_MESSAGE);
    fields.finish()?;
    Ok(conversation)
}

fn parse_conversation(fields: &mut Fields<'_>) -> ConversationRequest {
    let conversation = read_conversation(fields);
    let texts = || json!({"items": {"properties": {"content": messages::chat_schema(false)}}});
    fields.record("messages", texts);
    fields.reject_images(TEXT_MESSAGE);
    conversation
}

fn read_conversation(fields: &mut Fields<'_>) -> ConversationRequest {
    let tools = tool_definitions::parse_definitions(fields);
    fields.reject_left_out("must be \"function\"");
    let messages = messages::parse_messages(fields);
    ConversationRequest {
        tools,
        messages,
        kwargs: messages::template_kwargs(fields),
        add_generation_prompt: fields.boolean("add_generation_prompt").unwrap_or(true),
    }
}
