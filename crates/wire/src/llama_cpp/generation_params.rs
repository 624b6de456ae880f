//! Generation parameters of llama.cpp's routes: its names, and this server's own names.

use crate::fields::Fields;
use crate::ollama::request as ollama_request;
use crate::openai::{generation_fields, lora_field};
use crate::request_parser::ParseContext;
use engine::TOP_LOGPROBS_MAX;
use generate::generation_options::{GenerationOptions, TokenLimit};
use generate::request::{GenerationParams, StreamOptions};

/// Parses the generation parameters.
pub(super) fn parse_params(
    fields: &mut Fields<'_>,
    context: &ParseContext<'_>,
) -> GenerationParams {
    let mut given = GenerationOptions {
        lora: lora_field::lora(fields, context.adapters),
        ..ollama_request::llama_options(fields, context.vocab_size)
    };
    // 0 only computes the prompt, in llama.cpp; here one token shows that it is done.
    if let Some(tokens) = fields.integer("n_predict", -2..=i128::from(u32::MAX)) {
        let limit = usize::try_from(tokens).ok().map(|tokens| tokens.max(1));
        given.max_tokens = Some(limit.map_or(TokenLimit::Context, TokenLimit::Tokens));
    }
    context.defaults.note_problems(fields);
    let mut params = context.defaults.resolve(given);
    generation_fields::check_min_tokens(fields, &params);
    // llama.cpp has no limit; more than the engine keeps are left out.
    if let Some(top) = fields.integer("n_probs", 0..=i128::from(u32::MAX)) {
        let most = TOP_LOGPROBS_MAX.min(u32::try_from(context.vocab_size).unwrap_or(u32::MAX));
        params.sampling.logprobs = top > 0;
        params.sampling.top_logprobs = u32::try_from(top).map_or(most, |top| top.min(most));
        if top > i128::from(most) {
            fields.leave_out("n_probs", format!("n_probs.above_{most}"));
        }
    }
    params
}

/// Parses how the answer is delivered.
pub(super) fn parse_stream_options(fields: &mut Fields<'_>) -> StreamOptions {
    let options = generation_fields::stream_options(fields);
    let return_tokens = fields.boolean("return_tokens").unwrap_or(false);
    fields.integer("n", 1..=1);
    StreamOptions {
        // The objects of a stream always have their ids.
        return_token_ids: options.stream || return_tokens,
        ..options
    }
}
