//! Named shapes.

use super::spec::{RopeScaling, RopeSynth};
use super::{Mix, SynthSpec};
use crate::config::Architecture;
use kernels::Format;

/// Names of all presets.
///
/// * `llama-1b`, `qwen3-0.6b`: the shapes of Llama 3.2 1B and Qwen 3 0.6B, as Q4_K_M;
/// * `tiny-ARCHITECTURE`: two to four layers of 64, f32, for tests of every format with blocks of 32;
/// * `small-ARCHITECTURE`: the same of 256, for formats with blocks of 256;
/// * `server-layer`: next to no arithmetic and a vocabulary of 4096, to measure all but the model.
pub const PRESETS: &[&str] = &[
    "llama-1b",
    "qwen3-0.6b",
    "server-layer",
    "tiny-llama",
    "tiny-qwen2",
    "tiny-qwen3",
    "tiny-gemma2",
    "tiny-gemma3",
    "tiny-phi3",
    "small-llama",
    "small-qwen2",
    "small-qwen3",
    "small-gemma2",
    "small-gemma3",
    "small-phi3",
];

impl SynthSpec {
    /// The shape of this name; see [`PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        if let Some((size, family)) = name.split_once('-')
            && let Some(architecture) = Architecture::from_name(family)
        {
            return match size {
                "tiny" => Some(Self::tiny(architecture)),
                "small" => Some(Self::small(architecture)),
                _ => None,
            };
        }
        match name {
            "llama-1b" => Some(Self::llama_1b()),
            "qwen3-0.6b" => Some(Self::qwen3_600m()),
            "server-layer" => Some(Self::server_layer()),
            _ => None,
        }
    }

    /// Two layers (four where windows alternate) of 64, f32.
    pub fn tiny(architecture: Architecture) -> Self {
        use Architecture::{Gemma2, Gemma3, Llama, Phi3, Qwen3};
        let windows = matches!(architecture, Gemma2 | Gemma3);
        let scaling = match architecture {
            Llama => RopeScaling::Llama3 {
                factor: 8.0,
                original_context: 64,
            },
            Phi3 => RopeScaling::Longrope {
                original_context: 64,
                attention_factor: 1.19,
            },
            _ => RopeScaling::None,
        };
        Self {
            architecture,
            dim: 64,
            layers: if windows { 4 } else { 2 },
            heads: 4,
            kv_heads: 2,
            // Qwen 3 and Gemma choose the head size freely.
            head_dim: if windows || architecture == Qwen3 {
                32
            } else {
                16
            },
            ffn: 128,
            vocab: 300,
            context: 256,
            mix: Mix::Uniform(Format::F32),
            tied: windows || architecture == Qwen3,
            rope: RopeSynth {
                base: 10_000.0,
                dims: None,
                scaling,
            },
            window: windows.then_some(16),
            window_period: (architecture == Gemma3).then_some(2),
            seed: 1,
        }
    }

    /// [`SynthSpec::tiny`] with rows that are whole blocks of 256, as Q4_K_M.
    pub fn small(architecture: Architecture) -> Self {
        let tiny = Self::tiny(architecture);
        Self {
            dim: 256,
            head_dim: tiny.head_dim * 4,
            ffn: 512,
            vocab: 512,
            context: 512,
            mix: Mix::Q4_K_M,
            ..tiny
        }
    }

    fn llama_1b() -> Self {
        Self {
            dim: 2048,
            layers: 16,
            heads: 32,
            kv_heads: 8,
            head_dim: 64,
            ffn: 8192,
            vocab: 128_256,
            context: 131_072,
            mix: Mix::Q4_K_M,
            tied: true,
            rope: RopeSynth {
                base: 500_000.0,
                dims: None,
                scaling: RopeScaling::Llama3 {
                    factor: 32.0,
                    original_context: 8192,
                },
            },
            ..Self::tiny(Architecture::Llama)
        }
    }

    fn qwen3_600m() -> Self {
        Self {
            dim: 1024,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            ffn: 3072,
            vocab: 151_936,
            context: 40_960,
            mix: Mix::Q4_K_M,
            rope: RopeSynth {
                base: 1e6,
                dims: None,
                scaling: RopeScaling::None,
            },
            ..Self::tiny(Architecture::Qwen3)
        }
    }

    fn server_layer() -> Self {
        Self {
            vocab: 4096,
            context: 4096,
            mix: Mix::Uniform(Format::Q8_0),
            rope: RopeSynth {
                base: 10_000.0,
                dims: None,
                scaling: RopeScaling::None,
            },
            ..Self::tiny(Architecture::Llama)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid_shapes() {
        for name in PRESETS {
            let spec = SynthSpec::preset(name).unwrap();
            assert!(spec.check().is_ok(), "{name}");
        }
        assert_eq!(SynthSpec::preset("huge-llama"), None);
    }
}
