//! Recurrent layers of a synthetic model.

use super::error::SynthError;
use super::mix::{Mix, Role};
use super::plan::{Fill, Planner};
use super::spec::{ExpertsSynth, RopeScaling, RopeSynth, SynthSpec};
use crate::config::Architecture;
use crate::config::traits::Traits;
use crate::gguf::GgufWriter;
use kernels::{DeltaShape, Format};

/// Recurrent layers of a synthetic model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentSynth {
    /// Each layer is recurrent except each `period`-th.
    pub period: u32,
    /// Taps of the convolution.
    pub taps: u32,
    /// Heads of queries and keys.
    pub key_heads: u32,
    /// Heads of values, a multiple of `key_heads`.
    pub value_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
}

/// Deviation of the taps: the present and the past weigh the same.
const TAP_SPREAD: f32 = 0.5;

impl RecurrentSynth {
    /// The recurrent layers of a tiny model.
    pub(super) fn tiny(architecture: Architecture) -> Option<Self> {
        let rule = architecture.traits().recurrent;
        rule.map(|_| Self {
            period: 4,
            taps: 4,
            key_heads: 2,
            value_heads: 4,
            head_dim: 16,
        })
    }

    fn shape(&self, traits: &Traits) -> DeltaShape {
        let size = |size: u32| size as usize;
        DeltaShape {
            key_heads: size(self.key_heads),
            value_heads: size(self.value_heads),
            key_dim: size(self.head_dim),
            value_dim: size(self.head_dim),
            grouped: traits.recurrent.is_some_and(|rule| rule.grouped),
        }
    }

    /// Adds the keys.
    pub(super) fn put(&self, architecture: &str, out: &mut GgufWriter) {
        let key = |part: &str| format!("{architecture}.{part}");
        out.u32(&key("full_attention_interval"), self.period)
            .u32(&key("ssm.conv_kernel"), self.taps)
            .u32(&key("ssm.state_size"), self.head_dim)
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

    /// Whether a model with recurrent layers has others, too.
    pub(super) fn has_recurrent_and_others(&self) -> bool {
        let layers = 0..self.layers;
        let count = layers
            .filter(|layer| self.recurrent_in(*layer).is_some())
            .count();
        self.recurrent.is_none() || (1..self.layers as usize).contains(&count)
    }

    /// The recurrent part of a layer, if the layer is recurrent.
    pub(super) fn recurrent_in(&self, layer: u32) -> Option<&RecurrentSynth> {
        let recurrent = self.recurrent.as_ref();
        recurrent.filter(|recurrent| !(layer + 1).is_multiple_of(recurrent.period))
    }
}

impl Planner<'_> {
    /// The tensors of a recurrent layer, in place of those of attention.
    pub(super) fn recurrent(
        &mut self,
        layer: u32,
        recurrent: &RecurrentSynth,
    ) -> Result<(), SynthError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let shape = recurrent.shape(&self.traits);
        let (cols, values) = (shape.cols() as u32, shape.value_cols() as u32);
        let (dim, heads) = (self.spec.dim, recurrent.value_heads);
        self.matrix(name("attn_qkv.weight"), dim, cols, Role::Value(layer), 1.0)?;
        self.matrix(name("attn_gate.weight"), dim, values, Role::Plain, 1.0)?;
        let each: &[(&str, u32)] = match shape.grouped {
            true => &[("ssm_ba", 2)],
            false => &[("ssm_alpha", 1), ("ssm_beta", 1)],
        };
        for (part, parts) in each {
            let name = name(&format!("{part}.weight"));
            self.matrix(name, dim, heads * parts, Role::Plain, 1.0)?;
        }
        let noise = |deviation| Fill::Noise {
            format: Format::F32,
            deviation,
        };
        let taps = vec![u64::from(recurrent.taps), u64::from(cols)];
        self.push(
            name("ssm_conv1d.weight"),
            taps,
            Format::F32,
            noise(TAP_SPREAD),
        );
        self.vector(name("ssm_dt.bias"), heads, noise(1.0));
        // From heads that remember hundreds of tokens to heads that remember a few.
        let slow = |head: u32| -0.01 - 0.5 * head as f32 / heads as f32;
        self.vector(
            name("ssm_a"),
            heads,
            Fill::Values((0..heads).map(slow).collect()),
        );
        self.norm(name("ssm_norm.weight"), recurrent.head_dim, 1.0);
        self.matrix(name("ssm_out.weight"), values, dim, Role::Plain, 1.0)
    }
}
