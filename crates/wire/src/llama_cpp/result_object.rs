//! Objects of an answer as JSON, with the members of llama.cpp's server.

use super::generation_settings::GenerationSettings;
use super::timings::Timings;
use super::token_probabilities::TokenProbabilities;
use schemars::JsonSchema;
use serde::Serialize;
use stream::{End, Stop};

/// An object of a stream with text.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaText")]
pub(super) struct TextObject<'a> {
    pub(super) index: usize,
    pub(super) content: &'a str,
    pub(super) tokens: &'a [u32],
    pub(super) stop: bool,
    /// Always 0: there are no slots.
    pub(super) id_slot: u32,
    pub(super) tokens_predicted: u64,
    pub(super) tokens_evaluated: u64,
    /// With `timings_per_token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timings: Option<Timings>,
    /// With `n_probs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completion_probabilities: Option<TokenProbabilities<'a>>,
}

/// The last object of a stream, or a non-streaming response.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "LlamaResult")]
pub(super) struct ResultObject<'a> {
    pub(super) index: usize,
    pub(super) content: &'a str,
    pub(super) tokens: &'a [u32],
    /// Always 0: there are no slots.
    pub(super) id_slot: u32,
    pub(super) stop: bool,
    pub(super) model: &'a str,
    pub(super) tokens_predicted: u64,
    pub(super) tokens_evaluated: u64,
    pub(super) generation_settings: GenerationSettings<'a>,
    /// The text of the prompt, where the ids of tokens are returned.
    pub(super) prompt: &'a str,
    pub(super) has_new_line: bool,
    pub(super) truncated: bool,
    pub(super) stop_type: &'static str,
    pub(super) stopping_word: &'a str,
    pub(super) tokens_cached: u64,
    pub(super) timings: Timings,
    /// With `n_probs`: of a non-streaming response all, of a stream that of the end-of-sequence token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) completion_probabilities: Option<TokenProbabilities<'a>>,
}

/// The `stop_type` of an end, and the stop string.
pub(super) fn stop_type(end: End, stops: &[String]) -> (&'static str, &str) {
    match end {
        End::Length => ("limit", ""),
        End::Stop(Stop::StopString(which)) => {
            let word = stops.get(usize::from(which));
            ("word", word.map_or("", String::as_str))
        }
        End::Stop(Stop::Eos | Stop::ToolCalls) => ("eos", ""),
        _ => ("none", ""),
    }
}
