//! Parser of `POST /v1/inference` and `POST /v1/jobs`.

use crate::fields::recorder::token_id_schema;
use crate::fields::{self, Fields, JsonType, RawJson};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::job_id::{JOB_ID_BYTES_MAX, JOB_ID_MESSAGE, JobId};
use crate::shared::{generation_fields, messages};
use crate::{field_table, tool_definitions};
use generate::error::ApiError;
use generate::request::Prompt;
use generate::tools::Tools;
use serde_json::json;

/// Parses a request. The default of `stream` is true.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    let job_id = parse_job_id(&mut fields);
    let mut tools = Tools::default();
    let prompt = parse_prompt(&mut fields, context.vocab_size, &mut tools);
    let mut params = generation_fields::generation_params(&mut fields, context);
    params.take_tools(tools);
    params.reasoning_budget = messages::reasoning_budget(&mut fields);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    stream_options.webhook = generation_fields::webhook(&mut fields);
    stream_options.stream = fields.raw("stream").is_none() || stream_options.stream;
    fields.integer("n", 1..=1);
    generation_fields::reject_logprobs(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&field_table::JOBS)?;
    Ok(ParsedBody {
        job_id,
        ..ParsedBody::of_prompts(prompt, params, stream_options)
    })
}

fn parse_job_id(fields: &mut Fields<'_>) -> Option<JobId> {
    fields.record("job_id", || {
        json!({
            "minLength": 1, "maxLength": JOB_ID_BYTES_MAX, "pattern": "^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$",
            "description": "an identifier chosen by the caller",
        })
    });
    let text = fields.string("job_id")?;
    let id = JobId::parse(&text);
    if id.is_none() {
        fields.reject("job_id", JOB_ID_MESSAGE);
    }
    id
}

/// Parses either `prompt` (a string or token ids), or `messages` with tools.
fn parse_prompt(fields: &mut Fields<'_>, vocab: usize, tools: &mut Tools) -> Option<Prompt> {
    let prompt = fields.described("prompt", || {
        let ids = json!({"type": "array", "items": token_id_schema(), "minItems": 1});
        json!({"anyOf": [{"type": "string"}, ids]})
    });
    match (prompt, fields.raw("messages")) {
        (None, None) => {
            fields.reject("prompt", "is required unless messages are given");
            None
        }
        (Some(_), Some(_)) => {
            fields.reject("messages", "must not be given together with prompt");
            None
        }
        (None, Some(_)) => {
            let conversation = messages::parse_messages(fields);
            *tools = tool_definitions::parse_tools(fields);
            let (definitions, kwargs) =
                (tools.definitions.clone(), messages::template_kwargs(fields));
            Some(messages::prompt(
                "messages",
                conversation,
                definitions,
                kwargs,
            ))
        }
        (Some(raw), None) => {
            tool_definitions::reject_tools(fields);
            plain_prompt(fields, raw, vocab)
        }
    }
}

fn plain_prompt(fields: &mut Fields<'_>, raw: RawJson<'_>, vocab: usize) -> Option<Prompt> {
    if let Some(text) = fields::as_text(raw) {
        return Some(Prompt::Text(text.into_owned()));
    }
    if fields::json_type(raw) != JsonType::Array || fields::is_empty_list(raw) {
        fields.reject(
            "prompt",
            "must be a string or a list of at least one token id",
        );
        return None;
    }
    fields.ids("prompt", raw, vocab).map(Prompt::Ids)
}
