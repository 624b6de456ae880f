//! `POST /v1/ai-sdk/chat`: the body that the SDK's default transport sends.
//!
//! The transport sends `id`, `messages`, `trigger` and `messageId`, and whatever the page puts into `body`: the fields
//! of `/v1/chat/completions` are read from there (`model`, `temperature`, `tools`, `response_format` ...).

use super::message;
use crate::field_table::{self, FieldRow, FieldTable, Treatment};
use crate::fields::Fields;
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::{generation_fields, messages};
use crate::tool_definitions;
use generate::error::ApiError;
use generate::request::CONVERSATION_ID_BYTES_MAX;
use serde_json::json;

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
    let mut conversation = message::parse_messages(&mut fields);
    if let Some(system) = fields.string("system") {
        conversation.insert(0, messages::text_message("system", system));
    }
    let tools = tool_definitions::parse_tools(&mut fields);
    let kwargs = messages::template_kwargs(&mut fields);
    let mut params = generation_fields::generation_params(&mut fields, context);
    let tools = params.take_tools(tools);
    params.reasoning_budget = messages::reasoning_budget(&mut fields);
    let is_streamed = fields.boolean("stream").unwrap_or(true);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    field_table::CHAT.reject_fields(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&FIELDS)?;
    stream_options.stream = is_streamed;
    stream_options.conversation_id = conversation_id;
    let prompt = messages::prompt("messages", conversation, tools, kwargs);
    Ok(ParsedBody::of_prompts([prompt], params, stream_options))
}

fn parse_conversation_id(fields: &mut Fields<'_>) -> Option<Box<str>> {
    fields.record(
        "id",
        || json!({"maxLength": CONVERSATION_ID_BYTES_MAX, "description": "the chat"}),
    );
    let id = fields.string("id")?;
    if id.len() > CONVERSATION_ID_BYTES_MAX {
        let error_message = format!("must have at most {CONVERSATION_ID_BYTES_MAX} bytes");
        fields.reject("id", error_message);
    }
    Some(id.into())
}
