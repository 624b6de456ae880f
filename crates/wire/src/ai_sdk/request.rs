//! `POST /v1/ai-sdk/chat`: the body that the SDK's default transport sends.
//!
//! The transport sends `id`, `messages`, `trigger` and `messageId`, and whatever the page puts into `body`: the fields
//! of `/v1/chat/completions` are read from there (`model`, `temperature`, `tools`, `response_format` ...).

use super::message;
use crate::field_table::{self, FieldRow, FieldTable, Treatment};
use crate::fields::Fields;
use crate::openai::{chat_request, generation_fields};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::tool_definitions;
use generate::error::ApiError;
use generate::request::{CONVERSATION_ID_BYTES_MAX, GenerateRequest, Prompt};
use serde_json::Value;
use text::Message;

/// Fields of this protocol only, and their treatment.
const FIELDS: FieldTable = FieldTable {
    rows: &[no_effect("trigger"), no_effect("messageId")],
};

const fn no_effect(name: &'static str) -> FieldRow {
    FieldRow {
        name,
        treatment: Treatment::NoEffect("every answer is a new message"),
    }
}

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let conversation_id = parse_conversation_id(&mut fields);
    let mut messages = message::parse_messages(&mut fields);
    if let Some(system) = fields.string("system") {
        messages.insert(0, system_message(&system));
    }
    let tools = tool_definitions::parse_tools(&mut fields);
    let kwargs = chat_request::template_kwargs(&mut fields);
    let mut params = generation_fields::generation_params(&mut fields, context);
    let tools = params.take_tools(tools);
    params.reasoning_budget = chat_request::parse_reasoning_budget(&mut fields);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    field_table::CHAT.reject_fields(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&FIELDS)?;
    stream_options.stream = is_streamed;
    stream_options.conversation_id = conversation_id;
    Ok(GenerateRequest {
        prompts: vec![Prompt::Conversation {
            field: "messages",
            messages,
            tools,
            continues: false,
            kwargs,
        }],
        n: 1,
        params,
        stream_options,
    }
    .into())
}

fn parse_conversation_id(fields: &mut Fields<'_>) -> Option<Box<str>> {
    let id = fields.string("id")?;
    if id.len() > CONVERSATION_ID_BYTES_MAX {
        let error_message = format!("must have at most {CONVERSATION_ID_BYTES_MAX} bytes");
        fields.reject("id", error_message);
    }
    Some(id.into())
}

fn system_message(text: &str) -> Message {
    Message {
        role: "system".to_owned(),
        content: Value::String(text.to_owned()),
        rest: serde_json::Map::new(),
    }
}
