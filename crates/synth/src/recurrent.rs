//! Recurrent layers of a synthetic model.

use super::experts::ExpertsSynth;
use super::mix::Mix;
use super::spec::{RopeScaling, RopeSynth, SynthSpec};
use weights::config::Architecture;
use weights::config::recurrent_rule::{MambaLayers, RecurrentRule};
use weights::gguf::GgufWriter;

/// Recurrent layers of a synthetic model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentSynth {
    /// Each layer is recurrent except each `period`-th, in a family in which not all are. In Nemotron H, each second one of
    /// these is a feed-forward part.
    pub period: u32,
    /// Taps of the convolution.
    pub taps: u32,
    /// Heads of queries and keys.
    pub key_heads: u32,
    /// Heads of values, a multiple of `key_heads`.
    pub value_heads: u32,
    /// Elements of a head of values.
    pub head_dim: u32,
    /// Elements of a head of queries and keys, which are those of values in gated DeltaNet.
    pub state_dim: u32,
    /// Whether Mamba-2 has a norm, which only Falcon H1 has not.
    pub norm: bool,
}

/// The parts of a synthetic layer.
pub(super) struct LayerParts<'a> {
    pub(super) recurrent: Option<&'a RecurrentSynth>,
    pub(super) attends: bool,
    pub(super) feeds: bool,
}

impl RecurrentSynth {
    /// The recurrent layers of a tiny model.
    pub(super) fn tiny(architecture: Architecture) -> Option<Self> {
        let delta = Self {
            period: 4,
            taps: 4,
            key_heads: 2,
            value_heads: 4,
            head_dim: 16,
            state_dim: 16,
            norm: true,
        };
        architecture.traits().recurrent.map(|rule| match rule {
            RecurrentRule::Delta { .. } => delta,
            // llama.cpp wants twice the width of the stream.
            RecurrentRule::Mamba(_) => Self {
                head_dim: 32,
                ..delta
            },
            RecurrentRule::Convolution => Self { taps: 3, ..delta },
        })
    }

    /// Adds the keys.
    pub(super) fn put(&self, architecture: Architecture, out: &mut GgufWriter) {
        let key = |part: &str| format!("{architecture}.{part}");
        match architecture.traits().recurrent {
            Some(RecurrentRule::Convolution) => {
                out.u32(&key("shortconv.l_cache"), self.taps);
                return;
            }
            Some(RecurrentRule::Delta { .. }) => {
                out.u32(&key("full_attention_interval"), self.period);
            }
            _ => {}
        }
        out.u32(&key("ssm.conv_kernel"), self.taps)
            .u32(&key("ssm.state_size"), self.state_dim)
            .u32(&key("ssm.group_count"), self.key_heads)
            .u32(&key("ssm.time_step_rank"), self.value_heads)
            .u32(&key("ssm.inner_size"), self.value_heads * self.head_dim);
    }
}

impl SynthSpec {
    /// Qwen 3.5 0.8B.
    pub(super) fn qwen35_800m() -> Self {
        Self {
            dim: 1024,
            layers: 24,
            heads: 8,
            kv_heads: 2,
            ffn: 3584,
            tied: true,
            recurrent: Some(RecurrentSynth {
                period: 4,
                taps: 4,
                key_heads: 16,
                value_heads: 16,
                head_dim: 128,
                state_dim: 128,
                norm: true,
            }),
            ..Self::qwen35()
        }
    }

    /// Four of the 32 layers of Qwen 3.5 9B.
    pub(super) fn qwen35_9b_slice() -> Self {
        Self {
            dim: 4096,
            layers: 4,
            heads: 16,
            kv_heads: 4,
            ffn: 12_288,
            recurrent: Some(RecurrentSynth {
                period: 4,
                taps: 4,
                key_heads: 16,
                value_heads: 32,
                head_dim: 128,
                state_dim: 128,
                norm: true,
            }),
            ..Self::qwen35()
        }
    }

    /// Four of the 40 layers of Qwen 3.5 35B A3B.
    pub(super) fn qwen35_35b_a3b_slice() -> Self {
        Self {
            architecture: Architecture::Qwen35Moe,
            dim: 2048,
            layers: 4,
            heads: 16,
            kv_heads: 2,
            experts: Some(ExpertsSynth {
                count: 256,
                used: 8,
                ffn: 512,
                shared: 512,
            }),
            ..Self::qwen35_9b_slice()
        }
    }

    /// Sizes that all models of Qwen 3.5 share.
    fn qwen35() -> Self {
        Self {
            head_dim: 256,
            vocab: 248_320,
            context: 262_144,
            mix: Mix::Q4_K_M,
            tied: false,
            rope: RopeSynth {
                base: 1e7,
                dims: Some(64),
                scaling: RopeScaling::None,
            },
            sections: Some([11, 11, 10, 0]),
            ..Self::tiny(Architecture::Qwen35)
        }
    }

    /// Mamba-2 370M.
    pub(super) fn mamba2_370m() -> Self {
        Self {
            dim: 1024,
            layers: 48,
            vocab: 50_288,
            context: 1 << 20,
            mix: Mix::Q4_K_M,
            recurrent: Some(RecurrentSynth {
                period: 1,
                taps: 4,
                key_heads: 1,
                value_heads: 32,
                head_dim: 64,
                state_dim: 128,
                norm: true,
            }),
            ..Self::tiny(Architecture::Mamba2)
        }
    }

    /// Whether a model with recurrent layers has others, too, in a family that has both.
    pub(super) fn has_recurrent_and_others(&self) -> bool {
        use MambaLayers::{All, BesideAttention};
        let rule = self.architecture.traits().recurrent;
        if self.recurrent.is_none()
            || matches!(rule, Some(RecurrentRule::Mamba(All | BesideAttention)))
        {
            return true;
        }
        let layers = 0..self.layers;
        let count = layers
            .filter(|layer| self.parts_of(*layer).recurrent.is_some())
            .count();
        (1..self.layers as usize).contains(&count)
    }

    /// The parts of a layer.
    pub(super) fn parts_of(&self, layer: u32) -> LayerParts<'_> {
        let all = LayerParts {
            recurrent: None,
            attends: true,
            feeds: true,
        };
        let rule = self.architecture.traits().recurrent;
        // The MTP head, after the layers, has attention.
        let (Some(recurrent), Some(rule), true) = (&self.recurrent, rule, layer < self.layers)
        else {
            return all;
        };
        let attends = (layer + 1).is_multiple_of(recurrent.period);
        let is_second = layer % 2 == 1;
        let (recurs, attends, feeds) = match rule {
            RecurrentRule::Mamba(MambaLayers::All) => (true, false, false),
            RecurrentRule::Mamba(MambaLayers::BesideAttention) => (true, true, true),
            RecurrentRule::Mamba(MambaLayers::WithoutOthers) => {
                (!attends && !is_second, attends, !attends && is_second)
            }
            _ => (!attends, attends, true),
        };
        LayerParts {
            recurrent: recurs.then_some(recurrent),
            attends,
            feeds,
        }
    }
}
