//! Sampling parameters as responses report them.

use crate::request::GenerationParams;
use engine::SamplingParams;

/// The numbers among a generation's parameters, under the names of [`SamplingParams`]. A stream keeps them, and so they are small.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of SamplingParams")]
pub struct ReportedSampling {
    pub seed: u64,
    pub temperature: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub typical_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub penalty_window: u32,
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: u32,
    pub dry_window: u32,
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    pub top_logprobs: u32,
    pub ignore_eos: bool,
    /// Limit of the answer's tokens; `None`: as many as the context has room for.
    pub max_tokens: Option<u32>,
}

impl ReportedSampling {
    /// The parameters of a request, with its seed.
    pub fn of(params: &GenerationParams) -> Self {
        let max_tokens = params.max_tokens.and_then(|max| u32::try_from(max).ok());
        Self {
            seed: params.seed.unwrap_or(0),
            max_tokens,
            ..Self::from(&params.sampling)
        }
    }
}

impl Default for ReportedSampling {
    fn default() -> Self {
        Self::from(&SamplingParams::default())
    }
}

impl From<&SamplingParams> for ReportedSampling {
    fn from(sampling: &SamplingParams) -> Self {
        macro_rules! copied {
            ($($field:ident)*) => { Self { $($field: sampling.$field,)* max_tokens: None } };
        }
        copied! {
            seed temperature top_k top_p min_p typical_p repetition_penalty presence_penalty frequency_penalty
            penalty_window dry_multiplier dry_base dry_allowed_length dry_window xtc_probability xtc_threshold
            top_logprobs ignore_eos
        }
    }
}
