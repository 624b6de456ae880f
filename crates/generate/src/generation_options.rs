//! Generation parameters that a request or a model sets, each optional, until defaults fill the others.

use crate::model_handle::AdapterUse;
use crate::prompt_limit::Truncation;
use crate::request::{GenerationParams, ResponseFormat};
use crate::tools::ToolCalling;
use engine::SamplingParams;

/// Generation parameters that are set; `None` leaves a parameter to the next defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationOptions {
    /// 0: greedy.
    pub temperature: Option<f32>,
    /// 0: off.
    pub top_k: Option<u32>,
    /// 0: greedy.
    pub top_p: Option<f32>,
    /// 0: off.
    pub min_p: Option<f32>,
    /// 1: off.
    pub typical_p: Option<f32>,
    /// 1: off.
    pub repetition_penalty: Option<f32>,
    /// 0: off.
    pub presence_penalty: Option<f32>,
    /// 0: off.
    pub frequency_penalty: Option<f32>,
    /// Tokens that the penalties count.
    pub penalty_window: Option<PenaltyWindow>,
    /// 0: off.
    pub dry_multiplier: Option<f32>,
    /// Growth of the DRY penalty with each repeated token.
    pub dry_base: Option<f32>,
    /// Repeated tokens without a DRY penalty.
    pub dry_allowed_length: Option<u32>,
    /// Tokens in which the DRY penalty looks for repetitions.
    pub dry_window: Option<PenaltyWindow>,
    /// Texts over which the DRY penalty finds no repetition.
    pub dry_sequence_breakers: Option<Vec<String>>,
    /// 0: off.
    pub xtc_probability: Option<f32>,
    /// Above 0.5: off.
    pub xtc_threshold: Option<f32>,
    /// Added to logits, by token id.
    pub logit_bias: Option<Vec<(u32, f32)>>,
    /// End-of-sequence tokens are masked until this many tokens were generated.
    pub min_tokens: Option<u32>,
    /// Length of the answer.
    pub max_tokens: Option<TokenLimit>,
    /// Stop strings.
    pub stops: Option<Vec<String>>,
    /// Token ids that end an answer.
    pub stop_token_ids: Option<Vec<u32>>,
    /// Generation continues after an end-of-sequence token.
    pub ignore_eos: Option<bool>,
    /// Seed of the sampler.
    pub seed: Option<Seed>,
    /// Structured output.
    pub response_format: Option<ResponseFormat>,
    /// Whether schemas that do not set `additionalProperties` forbid other members.
    pub closed_objects: Option<bool>,
    /// Adapters that change the model.
    pub lora: Option<Vec<AdapterUse>>,
}

/// Limit of an answer's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenLimit {
    /// As many tokens as the context has room for.
    Context,
    /// At most this many tokens.
    Tokens(usize),
}

impl TokenLimit {
    /// The number of tokens; `None`: as many as the context has room for.
    pub fn tokens(self) -> Option<usize> {
        match self {
            Self::Context => None,
            Self::Tokens(tokens) => Some(tokens),
        }
    }
}

/// Tokens that the penalties count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PenaltyWindow {
    /// No tokens: the penalties are off.
    Off,
    /// All tokens.
    All,
    /// This many last tokens.
    Last(u32),
}

/// Seed of the sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seed {
    /// A different seed for each request.
    Random,
    /// Equal seeds give equal answers.
    Fixed(u64),
}

/// `Self` with these fields of the first value, or where they are `None` of the second.
macro_rules! own_or_below {
    ($own:ident, $below:ident; $($field:ident)*) => {
        Self { $($field: $own.$field.or_else(|| $below.$field.clone())),* }
    };
}
pub(crate) use own_or_below;

impl GenerationOptions {
    /// These options, with `defaults` for those that are not set.
    #[must_use]
    pub fn or(self, defaults: &Self) -> Self {
        own_or_below! { self, defaults;
            temperature top_k top_p min_p typical_p repetition_penalty presence_penalty frequency_penalty penalty_window
            dry_multiplier dry_base dry_allowed_length dry_window dry_sequence_breakers xtc_probability xtc_threshold
            logit_bias min_tokens max_tokens stops stop_token_ids ignore_eos seed response_format closed_objects lora
        }
    }

    /// These options of a request, with the model's `defaults` for those that are not set. Temperature 1 with top-p 1 means
    /// the model's own distribution: filters and penalties that such a request does not set are off.
    #[must_use]
    pub fn or_of_model(self, defaults: &Self) -> Self {
        match (self.temperature, self.top_p) {
            (Some(1.0), Some(1.0)) => self.or(&defaults.clone().without_sampling()),
            _ => self.or(defaults),
        }
    }

    /// These options without what changes the model's distribution, but for the logit bias.
    fn without_sampling(self) -> Self {
        Self {
            logit_bias: self.logit_bias,
            min_tokens: self.min_tokens,
            max_tokens: self.max_tokens,
            stops: self.stops,
            stop_token_ids: self.stop_token_ids,
            ignore_eos: self.ignore_eos,
            seed: self.seed,
            response_format: self.response_format,
            closed_objects: self.closed_objects,
            lora: self.lora,
            ..Self::default()
        }
    }

    /// The parameters, with the engine's defaults for options that are not set.
    pub fn resolve(self) -> GenerationParams {
        let sampling = self.sampling_params();
        GenerationParams {
            max_tokens: self.max_tokens.and_then(TokenLimit::tokens),
            dry_sequence_breakers: if sampling.dry_multiplier > 0.0 {
                self.dry_sequence_breakers.unwrap_or_else(default_breakers)
            } else {
                Vec::new()
            },
            sampling,
            stops: self.stops.unwrap_or_default(),
            stop_token_ids: self.stop_token_ids.unwrap_or_default(),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            seed: match self.seed {
                Some(Seed::Fixed(seed)) => Some(seed),
                Some(Seed::Random) | None => None,
            },
            response_format: self.response_format,
            closed_objects: self.closed_objects,
            tool_calling: ToolCalling::default(),
            constrained_tools: Vec::new(),
            reasoning_budget: None,
            prompt_logprobs: false,
            lora: self.lora.unwrap_or_default(),
            truncation: Truncation::Disabled,
            continued: None,
        }
    }

    fn sampling_params(&self) -> SamplingParams {
        let off = SamplingParams::default();
        let has_stop_ids = self
            .stop_token_ids
            .as_ref()
            .is_some_and(|ids| !ids.is_empty());
        let mut sampling = SamplingParams {
            temperature: self.temperature.unwrap_or(off.temperature),
            top_k: self.top_k.unwrap_or(off.top_k),
            top_p: self.top_p.unwrap_or(off.top_p),
            min_p: self.min_p.unwrap_or(off.min_p),
            typical_p: self.typical_p.unwrap_or(off.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(off.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(off.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(off.frequency_penalty),
            dry_multiplier: self.dry_multiplier.unwrap_or(off.dry_multiplier),
            dry_base: self.dry_base.unwrap_or(off.dry_base),
            dry_allowed_length: self.dry_allowed_length.unwrap_or(off.dry_allowed_length),
            xtc_probability: self.xtc_probability.unwrap_or(off.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(off.xtc_threshold),
            logit_bias: self.logit_bias.clone().unwrap_or_default(),
            min_tokens: self.min_tokens.unwrap_or(off.min_tokens),
            ignore_eos: self.ignore_eos.unwrap_or(false) && !has_stop_ids,
            ..off
        };
        if sampling.top_p == 0.0 {
            // Callers who send 0 mean greedy sampling.
            (sampling.top_p, sampling.top_k) = (1.0, 1);
        }
        match self.dry_window {
            None | Some(PenaltyWindow::All) => {}
            Some(PenaltyWindow::Last(tokens)) => sampling.dry_window = tokens,
            Some(PenaltyWindow::Off) => sampling.dry_multiplier = 0.0,
        }
        match self.penalty_window {
            None => {}
            Some(PenaltyWindow::All) => sampling.penalty_window = 0,
            Some(PenaltyWindow::Last(tokens)) => sampling.penalty_window = tokens,
            Some(PenaltyWindow::Off) => {
                sampling.repetition_penalty = 1.0;
                (sampling.presence_penalty, sampling.frequency_penalty) = (0.0, 0.0);
            }
        }
        sampling
    }
}

/// Breakers of a request that names none, as in llama.cpp.
fn default_breakers() -> Vec<String> {
    ["\n", ":", "\"", "*"].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::SamplingDefaults;

    #[test]
    fn options_that_are_set_win_over_defaults() {
        let given = GenerationOptions {
            temperature: Some(0.5),
            max_tokens: Some(TokenLimit::Context),
            seed: Some(Seed::Random),
            stops: Some(Vec::new()),
            ..GenerationOptions::default()
        };
        let defaults = GenerationOptions {
            temperature: Some(1.5),
            top_k: Some(7),
            max_tokens: Some(TokenLimit::Tokens(3)),
            seed: Some(Seed::Fixed(3)),
            stops: Some(vec!["x".to_owned()]),
            stop_token_ids: Some(vec![4]),
            ..GenerationOptions::default()
        };
        let params = given.or(&defaults).resolve();
        let sampling = &params.sampling;
        assert_eq!((sampling.temperature, sampling.top_k), (0.5, 7));
        assert_eq!((params.max_tokens, params.seed), (None, None));
        assert_eq!(
            (params.stops.len(), &params.stop_token_ids[..]),
            (0, &[4][..])
        );
    }

    #[test]
    fn temperature_and_top_p_of_one_are_the_models_own_distribution() {
        let defaults = GenerationOptions {
            repetition_penalty: Some(1.1),
            presence_penalty: Some(1.5),
            penalty_window: Some(PenaltyWindow::All),
            stops: Some(vec!["x".to_owned()]),
            ..SamplingDefaults::LLAMA_CPP.options()
        };
        let resolved = |temperature, top_p, min_p| {
            let given = GenerationOptions {
                temperature,
                top_p,
                min_p,
                ..GenerationOptions::default()
            };
            given.or_of_model(&defaults).resolve()
        };
        let one = Some(1.0);
        let plain = resolved(one, one, None);
        assert_eq!(plain.sampling, SamplingParams::default());
        assert_eq!(plain.stops, ["x"], "not about the distribution");
        let filtered = resolved(one, one, Some(0.5));
        assert_eq!((filtered.sampling.min_p, filtered.sampling.top_k), (0.5, 0));
        for (temperature, top_p) in [(one, None), (None, one), (Some(0.5), one)] {
            let sampling = resolved(temperature, top_p, None).sampling;
            let rest = (sampling.top_k, sampling.min_p, sampling.repetition_penalty);
            assert_eq!(rest, (40, 0.05, 1.1), "{temperature:?} {top_p:?}");
            let own = (sampling.temperature, sampling.top_p);
            assert_eq!(own, (temperature.unwrap_or(0.8), top_p.unwrap_or(0.95)));
        }
    }

    #[test]
    fn options_that_depend_on_each_other_are_resolved_together() {
        let options = GenerationOptions {
            top_p: Some(0.0),
            top_k: Some(40),
            repetition_penalty: Some(1.1),
            presence_penalty: Some(1.0),
            penalty_window: Some(PenaltyWindow::Off),
            ignore_eos: Some(true),
            stop_token_ids: Some(vec![4]),
            ..GenerationOptions::default()
        };
        let params = options.resolve();
        let sampling = &params.sampling;
        assert_eq!((sampling.top_p, sampling.top_k), (1.0, 1), "greedy");
        assert_eq!(
            (sampling.repetition_penalty, sampling.presence_penalty),
            (1.0, 0.0)
        );
        assert_eq!((params.ignore_eos, sampling.ignore_eos), (true, false));
        let dry = GenerationOptions {
            dry_multiplier: Some(0.8),
            dry_window: Some(PenaltyWindow::Last(9)),
            ..GenerationOptions::default()
        };
        let params = dry.clone().resolve();
        assert_eq!(params.sampling.dry_window, 9);
        assert_eq!(params.dry_sequence_breakers, ["\n", ":", "\"", "*"]);
        let off = GenerationOptions {
            dry_window: Some(PenaltyWindow::Off),
            ..dry
        };
        let params = off.resolve();
        assert_eq!(params.sampling.dry_multiplier, 0.0);
        assert_eq!(params.dry_sequence_breakers, [""; 0]);
        let nothing = GenerationOptions::default().resolve();
        assert_eq!(nothing.sampling, SamplingParams::default());
    }
}
