//! Tensor formats that safetensors can be quantized to, by their names in files and flags.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Quantization of safetensors weights at load.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
pub(crate) enum Quantize {
    /// 8 bits per weight and a scale for each 32: 8.5 bits.
    #[serde(rename = "q8_0")]
    #[value(name = "q8_0")]
    Q8,
    /// 4 bits per weight, and scales: 4.5 bits; the vocabulary projection has 6.6.
    #[serde(rename = "q4_k")]
    #[value(name = "q4_k")]
    Q4K,
}

impl From<Quantize> for weights::safetensors::Quantize {
    fn from(quantize: Quantize) -> Self {
        match quantize {
            Quantize::Q8 => Self::Q8_0,
            Quantize::Q4K => Self::Q4_K,
        }
    }
}
