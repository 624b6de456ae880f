//! `generation_settings`: the parameters of a generation under llama.cpp's names.

use generate::sampling::{ReportedSampling, SamplingDefaults};
use generate::stream_source::StreamMeta;
use schemars::JsonSchema;
use serde::Serialize;

/// Parameters of a generation, without its grammar and logit bias.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaGenerationSettings")]
pub struct GenerationSettings<'a> {
    seed: u64,
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    repeat_last_n: i64,
    repeat_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed_length: u32,
    /// -1: as many tokens as are accepted.
    dry_penalty_last_n: i64,
    stop: &'a [String],
    /// -1: as many tokens as the context has room for.
    max_tokens: i64,
    n_predict: i64,
    ignore_eos: bool,
    stream: bool,
    n_probs: u32,
    timings_per_token: bool,
}

impl<'a> GenerationSettings<'a> {
    /// Of a stream.
    pub(super) fn of(meta: &'a StreamMeta) -> Self {
        Self {
            stop: &meta.stops,
            ..GenerationSettings::of_stream(meta)
        }
    }
}

impl GenerationSettings<'static> {
    /// Of a stream, without stop strings.
    pub fn of_stream(meta: &StreamMeta) -> Self {
        let options = &meta.stream_options;
        Self {
            stream: options.stream,
            timings_per_token: options.timings,
            ..Self::new(&meta.sampling)
        }
    }

    /// Of a request that sets none.
    pub fn defaults(sampling: SamplingDefaults) -> Self {
        Self::new(&ReportedSampling::of(&sampling.options().resolve()))
    }

    fn new(sampling: &ReportedSampling) -> Self {
        let max_tokens = sampling.max_tokens.map_or(-1, i64::from);
        Self {
            seed: sampling.seed,
            temperature: sampling.temperature,
            top_k: sampling.top_k,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            typical_p: sampling.typical_p,
            xtc_probability: sampling.xtc_probability,
            xtc_threshold: sampling.xtc_threshold,
            repeat_last_n: window(sampling.penalty_window),
            repeat_penalty: sampling.repetition_penalty,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            dry_multiplier: sampling.dry_multiplier,
            dry_base: sampling.dry_base,
            dry_allowed_length: sampling.dry_allowed_length,
            dry_penalty_last_n: window(sampling.dry_window),
            stop: &[],
            max_tokens,
            n_predict: max_tokens,
            ignore_eos: sampling.ignore_eos,
            stream: true,
            n_probs: sampling.top_logprobs,
            timings_per_token: false,
        }
    }
}

/// A number of tokens in llama.cpp's form: 0 is all tokens in the engine, and off in llama.cpp.
fn window(tokens: u32) -> i64 {
    match tokens {
        0 => -1,
        tokens => i64::from(tokens),
    }
}
