//! Parser of `POST /v1/completions`.

use super::stored_completion;
use crate::fields::Fields;
use crate::fields::bounds::IDS_MAX;
use crate::fields::recorder::token_id_schema;
use crate::request_parser::{ParseContext, ParsedBody};
use crate::shared::{generation_fields, messages};
use crate::{field_table, tool_definitions};
use generate::error::ApiError;
use generate::infill_prompt::InfillPrompt;
use generate::request::{
    BestOf, CHOICES_MAX, ContinuedAnswer, GenerationParams, Prompt, TOP_LOGPROBS_MAX,
};
use serde_json::{Value, json};

/// Default of `max_tokens` on this route, as in OpenAI's API.
const MAX_TOKENS_DEFAULT: usize = 16;

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse(mut fields: Fields<'_>, context: &ParseContext<'_>) -> Result<ParsedBody, ApiError> {
    fields.record("prompt", prompts_schema);
    let (most, vocab) = ((CHOICES_MAX, "prompts"), context.vocab_size);
    let prompts = messages::parse_prompts(&mut fields, "prompt", most, vocab, |_, _, it| Some(it));
    let echo = fields.boolean("echo").unwrap_or(false);
    let prompts = add_suffix(&mut fields, prompts, echo);
    let mut params =
        generation_fields::generation_params_with_min(&mut fields, context, i128::from(!echo));
    params.max_tokens = params.max_tokens.or(Some(MAX_TOKENS_DEFAULT));
    generation_fields::check_min_tokens(&mut fields, &params);
    params.truncation = generation_fields::prompt_truncation(&mut fields);
    let mut stream_options = generation_fields::stream_options(&mut fields);
    let n = generation_fields::choice_count(&mut fields, prompts.len());
    stream_options.echo = echo;
    stream_options.return_token_ids = fields.boolean("return_token_ids").unwrap_or(false);
    stream_options.timings = fields.boolean("timings_per_token").unwrap_or(false);
    if let Some(top) = fields.integer_as("logprobs", 0..=TOP_LOGPROBS_MAX as i128) {
        params.sampling.logprobs = true;
        params.sampling.top_logprobs = top;
    }
    params.prompt_logprobs = echo && (params.sampling.logprobs || params.max_tokens == Some(0));
    let generated = parse_best_of(&mut fields, n, prompts.len(), stream_options.stream);
    if params.prompt_logprobs {
        reject_beside_prompt_logprobs(&mut fields, &params, generated > n);
    }
    if generated > n {
        stream_options.best_of = Some(BestOf {
            returned: n,
            generated,
            logprobs: params.sampling.logprobs,
        });
        params.sampling.logprobs = true;
    }
    let answers = generated.max(n) * prompts.len();
    params.continued = parse_continued(&mut fields, &params, (answers, echo), context.vocab_size);
    tool_definitions::reject_tools(&mut fields);
    stream_options.ignored_fields = fields.finish_request(&field_table::COMPLETIONS)?;
    let mut body = ParsedBody::of_prompts(prompts, params, stream_options);
    body.request.n = generated;
    Ok(body)
}

/// Parses `continue_token_ids` and `continue_choice`: an answer that another server has begun.
fn parse_continued(
    fields: &mut Fields<'_>,
    params: &GenerationParams,
    (answers, echo): (usize, bool),
    vocab: usize,
) -> Option<ContinuedAnswer> {
    let choice = fields.integer_as("continue_choice", 0..=CHOICES_MAX as i128 - 1);
    fields.record("continue_choice", || {
        json!({"description": "number of the choice whose random numbers are used, as if it were one of several"})
    });
    let raw = fields.described("continue_token_ids", || {
        json!({
            "type": "array", "items": token_id_schema(), "maxItems": IDS_MAX,
            "description": "ids of the answer so far, which another server has begun: the answer begins with them, and the rest is that of the same answer",
        })
    });
    let ids = raw.and_then(|raw| fields.ids("continue_token_ids", raw, vocab));
    if raw.is_none() && choice.is_none() {
        return None;
    }
    let name = match raw {
        Some(_) => "continue_token_ids",
        None => "continue_choice",
    };
    let continued = ContinuedAnswer {
        token_ids: ids.unwrap_or_default(),
        choice: choice.unwrap_or(0),
    };
    let most = params.max_tokens.unwrap_or(usize::MAX);
    if continued.token_ids.len() >= most {
        let count = continued.token_ids.len();
        let message = format!("has {count} ids: must be fewer than max_tokens, which is {most}");
        fields.reject(name, message);
    }
    if answers > 1 {
        fields.reject(name, "needs one prompt and one choice (n and best_of 1)");
    }
    if echo || params.sampling.top_logprobs > 0 {
        fields.reject(
            name,
            "cannot be combined with echo or with logprobs above 0",
        );
    }
    Some(continued)
}

/// Parses `best_of`: the number of answers to generate for each of `prompts` prompts, of which `n` are returned.
fn parse_best_of(fields: &mut Fields<'_>, n: usize, prompts: usize, stream: bool) -> usize {
    let best: Option<usize> = fields.integer_as("best_of", 1..=CHOICES_MAX as i128);
    let best = best.unwrap_or(n);
    if best < n {
        fields.reject("best_of", format!("must be at least n, which is {n}"));
    } else if best > n && stream {
        let error_message = "must equal n for a streamed answer: the best answers are known only when all have ended";
        fields.reject("best_of", error_message);
    } else if best > n && best * prompts > CHOICES_MAX {
        let error_message = format!(
            "prompts times best_of must be at most {CHOICES_MAX}, not {}",
            best * prompts
        );
        fields.reject("best_of", error_message);
    }
    best.max(n)
}

/// Rejects parameters that would treat the prompt's tokens as tokens of the answer.
fn reject_beside_prompt_logprobs(
    fields: &mut Fields<'_>,
    params: &GenerationParams,
    selects_best: bool,
) {
    let error_message = "cannot be combined with prompt log-probabilities (echo with logprobs or with max_tokens 0)";
    let sampling = &params.sampling;
    let penalties = [
        ("presence_penalty", sampling.presence_penalty != 0.0),
        ("frequency_penalty", sampling.frequency_penalty != 0.0),
        ("best_of", selects_best),
    ];
    for (name, _) in penalties.into_iter().filter(|(_, used)| *used) {
        fields.reject(name, error_message);
    }
}

/// Parses `suffix`: the answer fills the gap between each prompt and this text.
fn add_suffix(fields: &mut Fields<'_>, prompts: Vec<Prompt>, echo: bool) -> Vec<Prompt> {
    let suffix = fields.string("suffix").filter(|suffix| !suffix.is_empty());
    let Some(suffix) = suffix else {
        return prompts;
    };
    if echo {
        fields.reject("echo", "cannot be combined with suffix");
    }
    if !prompts
        .iter()
        .all(|prompt| matches!(prompt, Prompt::Text(_)))
    {
        fields.reject("suffix", "needs prompts that are texts, not token ids");
    }
    let gap = |prompt| match prompt {
        Prompt::Text(before) => Prompt::Infill(InfillPrompt {
            before,
            after: suffix.to_string(),
            repository: None,
        }),
        other => other,
    };
    prompts.into_iter().map(gap).collect()
}

fn prompts_schema() -> Value {
    let ids = json!({"type": "array", "items": token_id_schema(), "minItems": 1});
    let prompt = json!({"anyOf": [{"type": "string"}, ids]});
    json!({"anyOf": [
        {"type": "string"}, ids,
        {"type": "array", "items": prompt, "minItems": 1, "maxItems": CHOICES_MAX},
    ]})
}

/// Parses a request.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_chat(
    mut fields: Fields<'_>,
    context: &ParseContext<'_>,
) -> Result<ParsedBody, ApiError> {
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
    let images = fields.take_images();
    stream_options.ignored_fields = fields.finish_request(&field_table::CHAT)?;
    let prompt = messages::prompt("messages", conversation, tools, kwargs);
    let mut body = ParsedBody::of_prompts([prompt], params, stream_options).with_images(images);
    (body.request.n, body.stored_request) = (n, stored_request);
    Ok(body)
}
