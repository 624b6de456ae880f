//! Settings of sampling: parameters of requests that set none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{SamplingDefaults, SamplingParameter};

/// Sampling parameters of requests that set none. What is not set here is as the model's files recommend, or else as in llama.cpp.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sampling {
    /// Temperature, 0 to 2; 0 = greedy.
    #[schemars(extend("x-reload" = "live", "x-reason" = "as the model's files recommend; without a recommendation 0.8, as in llama.cpp"))]
    pub(crate) temperature: Option<f64>,
    /// Number of the likeliest tokens that are kept; 0 = all.
    #[schemars(
        range(min = 0, max = u32::MAX as u64),
        extend("x-reload" = "live", "x-reason" = "likewise; 40")
    )]
    pub(crate) top_k: Option<u64>,
    /// Probability of the likeliest tokens that are kept, 0 to 1; 1 = all.
    #[schemars(extend("x-reload" = "live", "x-reason" = "likewise; 0.95"))]
    pub(crate) top_p: Option<f64>,
    /// Least probability in relation to the likeliest token's, 0 to 1; 0 = none.
    #[schemars(extend("x-reload" = "live", "x-reason" = "likewise; 0.05"))]
    pub(crate) min_p: Option<f64>,
    /// Repetition penalty, above 0 and at most 10; 1 = none.
    #[schemars(extend("x-reload" = "live", "x-reason" = "likewise; 1"))]
    pub(crate) repetition_penalty: Option<f64>,
    /// Presence penalty, -2 to 2; 0 = none.
    #[schemars(extend("x-reload" = "live", "x-reason" = "likewise; 0"))]
    pub(crate) presence_penalty: Option<f64>,
    /// Frequency penalty, -2 to 2; 0 = none.
    #[schemars(extend("x-reload" = "live", "x-reason" = "likewise; 0"))]
    pub(crate) frequency_penalty: Option<f64>,
}

impl Sampling {
    /// The defaults. Values out of bounds were rejected when the settings were read.
    pub(crate) fn defaults(&self) -> SamplingDefaults {
        self.checked().unwrap_or_default()
    }

    /// The defaults, or the first key with an invalid value and why.
    fn checked(&self) -> Result<SamplingDefaults, (&'static str, String)> {
        use SamplingParameter as P;
        #[expect(clippy::cast_precision_loss, reason = "larger counts are rejected")]
        let top_k = self.top_k.map(|top_k| top_k as f64);
        let mut defaults = SamplingDefaults::default();
        for (key, parameter, value) in [
            ("sampling.temperature", P::Temperature, self.temperature),
            ("sampling.top_k", P::TopK, top_k),
            ("sampling.top_p", P::TopP, self.top_p),
            ("sampling.min_p", P::MinP, self.min_p),
            (
                "sampling.repetition_penalty",
                P::RepetitionPenalty,
                self.repetition_penalty,
            ),
            (
                "sampling.presence_penalty",
                P::PresencePenalty,
                self.presence_penalty,
            ),
            (
                "sampling.frequency_penalty",
                P::FrequencyPenalty,
                self.frequency_penalty,
            ),
        ] {
            if let Some(value) = value {
                defaults.set(parameter, value).map_err(|why| (key, why))?;
            }
        }
        Ok(defaults)
    }

    /// The first invalid setting, and why.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        self.checked().err()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layers::problem;
    use serde_json::json;

    #[test]
    fn sampling_out_of_bounds_is_a_problem_with_its_bound() {
        for (key, value, want) in [
            (
                "sampling.temperature",
                json!(2.5),
                "must be a number from 0 to 2, not 2.5",
            ),
            (
                "sampling.top_p",
                json!(-1),
                "must be a number from 0 to 1, not -1",
            ),
            ("sampling.top_k", json!(1u64 << 40), "4294967295"),
            (
                "sampling.repetition_penalty",
                json!(0),
                "must be a number from 0.000001",
            ),
        ] {
            let why = problem(&[(key, value)]).expect(want);
            assert!(why.contains(key) && why.contains(want), "{why}");
        }
        assert_eq!(problem(&[("sampling.temperature", json!(0))]), None);
    }
}
