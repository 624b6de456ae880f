//! Parser of `POST /v1/inference` and `POST /v1/jobs`.

use crate::fields::recorder::token_id_schema;
use crate::fields::{self, Fields, JsonType, OrReject, RawJson};
use crate::json;
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::images::{images_schema, in_order, parse_images, pieces_with};
use crate::shared::job_outcome::{JOB_ID_BYTES_MAX, JOB_ID_MESSAGE, JobError, JobId};
use crate::shared::{error_response, generation_fields, messages};
use crate::{field_table, tool_definitions};
use bytes::Bytes;
use generate::error::{ApiError, Problem};
use generate::request::Prompt;
use generate::tools::Tools;
use http::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

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
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&field_table::JOBS)?;
    Ok(ParsedBody {
        job_id,
        ..ParsedBody::of_prompts(prompt, params, stream_options).with_images(images)
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
    id.or_reject(fields, "job_id", JOB_ID_MESSAGE)
}

/// Parses either `prompt` (a string or token ids), or `messages` with tools.
fn parse_prompt(fields: &mut Fields<'_>, vocab: usize, tools: &mut Tools) -> Option<Prompt> {
    let prompt = fields.described("prompt", || {
        let ids = json!({"type": "array", "items": token_id_schema(), "minItems": 1});
        json!({"anyOf": [{"type": "string"}, ids]})
    });
    let images = match fields.described("images", images_schema) {
        Some(images) => parse_images(fields, "images", images),
        None => Vec::new(),
    };
    if prompt.is_none() && !images.is_empty() {
        fields.reject("images", "belongs to prompt: images are parts of messages");
    }
    match (prompt, fields.raw("messages")) {
        (None, None) => fields.no_value("prompt", "is required unless messages are given"),
        (Some(_), Some(_)) => fields.no_value("messages", "must not be given together with prompt"),
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
            plain_prompt(fields, raw, (&images, vocab))
        }
    }
}

fn plain_prompt(
    fields: &mut Fields<'_>,
    raw: RawJson<'_>,
    (images, vocab): (&[usize], usize),
) -> Option<Prompt> {
    if let Some(text) = fields::as_text(raw) {
        return Some(if images.is_empty() {
            Prompt::Text(text.into_owned())
        } else {
            Prompt::Pieces(pieces_with(&text, &in_order(images)))
        });
    }
    if !images.is_empty() {
        fields.reject("images", "needs a prompt that is a string");
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

/// The body of an error response.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobErrorBody<'a> {
    Error(JobError<'a>),
    Errors(Vec<JobFieldError<'a>>),
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct JobFieldError<'a> {
    field: &'a str,
    constraint: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    value: Option<&'a RawValue>,
}

impl<'a> JobFieldError<'a> {
    fn new(problem: &'a Problem) -> Self {
        let (field, constraint) = (&*problem.field, &*problem.constraint);
        let value = problem.value.as_deref();
        Self {
            field,
            constraint,
            message: format!("{field} {constraint}"),
            value: value.and_then(|value| serde_json::from_str(value).ok()),
        }
    }
}

/// The error response.
pub fn to_response<B: From<Bytes>>(error: &ApiError) -> Response<B> {
    error_response::with_body(error, error_body(error))
}

/// The body of an error response: all rejected fields, or one error.
pub fn error_body(error: &ApiError) -> Bytes {
    let body = if error.problems.is_empty() {
        JobErrorBody::Error(JobError::new(error))
    } else {
        JobErrorBody::Errors(error.problems.iter().map(JobFieldError::new).collect())
    };
    json::to_vec(&body).freeze()
}
