//! Parser of `POST /v1/chat/completions`.

use super::stored_completion;
use crate::fields::Fields;
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::{generation_fields, messages};
use crate::{field_table, tool_definitions};
use generate::error::ApiError;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let conversation = messages::parse_messages(&mut fields);
    let mut tools = tool_definitions::parse_tools(&mut fields);
    let offered_tools = std::mem::take(&mut tools.offered);
    let kwargs = messages::template_kwargs(&mut fields);
    let mut params = generation_fields::generation_params(&mut fields, context);
    let tools = params.take_tools(tools);
    params.reasoning_budget = messages::reasoning_budget(&mut fields);
    params.truncation = generation_fields::prompt_truncation(&mut fields);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    stream_options.offered_tools = offered_tools;
    let n = generation_fields::choice_count(&mut fields, 1);
    generation_fields::parse_logprobs(&mut fields, &mut params.sampling);
    stream_options.return_token_ids = fields.boolean("return_token_ids").unwrap_or(false);
    stream_options.timings = fields.boolean("timings_per_token").unwrap_or(false);
    let stored_request = stored_completion::parse_store(&mut fields, &params);
    stream_options.ignored_fields = fields.finish_request(&field_table::CHAT)?;
    let prompt = messages::prompt("messages", conversation, tools, kwargs);
    let mut body = ParsedBody::of_prompts([prompt], params, stream_options);
    (body.request.n, body.stored_request) = (n, stored_request);
    Ok(body)
}
