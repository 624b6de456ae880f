//! Parser of `POST /v1/inference` and `POST /v1/jobs`.

use super::job_id::{JOB_ID_MESSAGE, JobId};
use crate::fields::{self, Fields, JsonType, RawJson};
use crate::openai::{chat_request, generation_fields};
use crate::request_parser::{ParseContext, ParsedBody};
use crate::{field_table, tool_definitions};
use generate::error::ApiError;
use generate::request::{GenerateRequest, Prompt};
use generate::tools::Tools;

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
    params.reasoning_budget = chat_request::parse_reasoning_budget(&mut fields);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    stream_options.webhook = generation_fields::webhook(&mut fields);
    stream_options.stream = fields.raw("stream").is_none() || stream_options.stream;
    fields.integer("n", 1..=1);
    for name in ["logprobs", "top_logprobs"] {
        if fields
            .raw(name)
            .is_some_and(|raw| !matches!(raw.get(), "false" | "0"))
        {
            fields.reject(
                name,
                "is not supported in this wire format: use another one for this stream",
            );
        }
    }
    stream_options.ignored_fields = fields.finish_request(&field_table::JOBS)?;
    let request = GenerateRequest {
        prompts: prompt.into_iter().collect(),
        n: 1,
        params,
        stream_options,
    };
    Ok(ParsedBody {
        job_id,
        ..request.into()
    })
}

fn parse_job_id(fields: &mut Fields<'_>) -> Option<JobId> {
    let text = fields.string("job_id")?;
    let id = JobId::parse(&text);
    if id.is_none() {
        fields.reject("job_id", JOB_ID_MESSAGE);
    }
    id
}

/// Parses either `prompt` (a string or token ids), or `messages` with tools.
fn parse_prompt(fields: &mut Fields<'_>, vocab: usize, tools: &mut Tools) -> Option<Prompt> {
    match (fields.raw("prompt"), fields.raw("messages")) {
        (None, None) => {
            fields.reject("prompt", "is required unless messages are given");
            None
        }
        (Some(_), Some(_)) => {
            fields.reject("messages", "must not be given together with prompt");
            None
        }
        (None, Some(_)) => {
            let messages = chat_request::parse_messages(fields);
            *tools = tool_definitions::parse_tools(fields);
            Some(Prompt::Conversation {
                field: "messages",
                messages,
                tools: tools.definitions.clone(),
                continues: false,
                kwargs: chat_request::template_kwargs(fields),
            })
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
