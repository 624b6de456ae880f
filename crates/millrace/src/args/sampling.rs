//! Flags of sampling.

use crate::config::Layers;
use clap::Args;
use generate::generation_options::GenerationOptions;

/// Sampling parameters; default: those that the model's files recommend, or else llama.cpp's.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SamplingArgs {
    /// Sampling temperature; 0 = greedy. Default: as the model recommends, or else 0.8.
    #[arg(long, value_name = "NUMBER", visible_alias = "temp")]
    pub(crate) temperature: Option<f64>,
    /// Top-k sampling; 0 = off. Default: as the model recommends, or else 40.
    #[arg(long, value_name = "N")]
    pub(crate) top_k: Option<u32>,
    /// Top-p (nucleus) sampling; 1 = off. Default: as the model recommends, or else 0.95.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) top_p: Option<f64>,
    /// Min-p sampling; 0 = off. Default: as the model recommends, or else 0.05.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) min_p: Option<f64>,
    /// Repetition penalty; 1 = off. Default: as the model recommends, or else off.
    #[arg(long, value_name = "NUMBER", visible_alias = "repeat-penalty")]
    pub(crate) repetition_penalty: Option<f64>,
}

impl SamplingArgs {
    /// These over other layers, as the defaults of a server's requests.
    pub(crate) fn over(&self, layers: Layers) -> Layers {
        layers
            .flag("sampling.temperature", self.temperature.as_ref())
            .flag("sampling.top_k", self.top_k.as_ref())
            .flag("sampling.top_p", self.top_p.as_ref())
            .flag("sampling.min_p", self.min_p.as_ref())
            .flag(
                "sampling.repetition_penalty",
                self.repetition_penalty.as_ref(),
            )
    }

    /// These as the options of an answer.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the engine computes in f32"
    )]
    pub(crate) fn options(&self) -> GenerationOptions {
        let number = |value: Option<f64>| value.map(|value| value as f32);
        GenerationOptions {
            temperature: number(self.temperature),
            top_k: self.top_k,
            top_p: number(self.top_p),
            min_p: number(self.min_p),
            repetition_penalty: number(self.repetition_penalty),
            ..GenerationOptions::default()
        }
    }
}
