//! Decoder families and their differences, as a table.

use kernels::RopePairs;

/// A family of decoders, by its name in `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 1 to 3, Mistral, SmolLM, TinyLlama.
    Llama,
    /// Qwen 1.5, 2 and 2.5.
    Qwen2,
    /// Qwen 3, dense.
    Qwen3,
    /// Gemma 2.
    Gemma2,
    /// Gemma 3, text.
    Gemma3,
    /// Phi 3, 3.5 and 4 mini.
    Phi3,
}

/// The non-linearity of the feed-forward gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `x * sigmoid(x)`.
    Silu,
    /// Gelu, tanh approximation.
    Gelu,
}

/// Which layers use a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowRule {
    /// None, whatever the metadata contains. Files of Mistral and Phi 3 carry windows, but llama.cpp, against
    /// which their weights were checked, ignores the windows.
    Never,
    /// All layers except each `period`-th, if there is a window.
    Periodic {
        /// Window when the key is absent; 0 for none.
        window: usize,
        /// Period when the key is absent.
        period: usize,
    },
}

/// Source of the divisors of rope frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FactorRule {
    /// No divisors.
    Never,
    /// `rope_freqs.weight`; with scaling type `longrope` the long and short ones.
    ByScaling,
    /// `rope_factors_long.weight` and `rope_factors_short.weight`.
    LongShort,
}

/// Differences between families that do not depend on metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Traits {
    pub(crate) pairs: RopePairs,
    pub(crate) gate: Gate,
    pub(crate) windows: WindowRule,
    pub(crate) factors: FactorRule,
    /// RMS norm of each query and key head.
    pub(crate) qk_norm: bool,
    /// RMS norm after attention and after the feed-forward part.
    pub(crate) post_norms: bool,
    /// Embeddings are multiplied by `sqrt(dim)`.
    pub(crate) scaled_embedding: bool,
    /// Gate and up projections are one tensor, `ffn_up`, gate first.
    pub(crate) fused_gate_up: bool,
    /// Cap of attention scores when the key is absent; `None`: the key is not read.
    pub(crate) attention_cap: Option<f32>,
    /// Cap of logits when the key is absent; `None`: the key is not read.
    pub(crate) logit_cap: Option<f32>,
    /// The rope of layers with a window.
    pub(crate) local_rope: LocalRope,
    /// A model of this many layers scales queries by `sqrt(dim / heads)`, not `sqrt(head_dim)`.
    pub(crate) layers_scaled_by_dim: Option<usize>,
}

/// The rope of layers with a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LocalRope {
    /// The global rope, with `rope.freq_base_swa` as the base if given.
    AsGlobal,
    /// No scaling, with this base unless `rope.freq_base_swa` is given.
    Unscaled {
        /// Base of the frequencies.
        theta: f32,
    },
}

/// Traits that most families share.
const PLAIN: Traits = Traits {
    pairs: RopePairs::Halves,
    gate: Gate::Silu,
    windows: WindowRule::Never,
    factors: FactorRule::Never,
    qk_norm: false,
    post_norms: false,
    scaled_embedding: false,
    fused_gate_up: false,
    attention_cap: None,
    logit_cap: None,
    local_rope: LocalRope::AsGlobal,
    layers_scaled_by_dim: None,
};

impl Architecture {
    /// All supported families.
    pub const ALL: [Self; 6] = [
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma2,
        Self::Gemma3,
        Self::Phi3,
    ];

    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
        }
    }

    /// The family with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    pub(crate) const fn traits(self) -> Traits {
        match self {
            Self::Llama => Traits {
                pairs: RopePairs::Adjacent,
                factors: FactorRule::ByScaling,
                ..PLAIN
            },
            Self::Qwen2 => PLAIN,
            Self::Qwen3 => Traits {
                qk_norm: true,
                ..PLAIN
            },
            Self::Gemma2 => Traits {
                gate: Gate::Gelu,
                windows: WindowRule::Periodic {
                    window: 4096,
                    period: 2,
                },
                post_norms: true,
                scaled_embedding: true,
                attention_cap: Some(50.0),
                logit_cap: Some(30.0),
                layers_scaled_by_dim: Some(46),
                ..PLAIN
            },
            Self::Gemma3 => Traits {
                gate: Gate::Gelu,
                windows: WindowRule::Periodic {
                    window: 0,
                    period: 6,
                },
                qk_norm: true,
                post_norms: true,
                scaled_embedding: true,
                logit_cap: Some(0.0),
                local_rope: LocalRope::Unscaled { theta: 10_000.0 },
                layers_scaled_by_dim: Some(62),
                ..PLAIN
            },
            Self::Phi3 => Traits {
                factors: FactorRule::LongShort,
                fused_gate_up: true,
                ..PLAIN
            },
        }
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
