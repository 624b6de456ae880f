//! Recurrent layers of a synthetic model.

use super::error::SynthError;
use super::experts::ExpertsSynth;
use super::mix::{Mix, Role};
use super::plan::{Fill, Planner};
use super::spec::{RopeScaling, RopeSynth, SynthSpec};
use kernels::{Format, ScanRule, ScanShape};
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

/// Deviation of the taps: the present and the past weigh the same.
const TAP_SPREAD: f32 = 0.5;

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

    fn shape(&self, rule: RecurrentRule) -> ScanShape {
        let size = |size: u32| size as usize;
        ScanShape {
            key_heads: size(self.key_heads),
            value_heads: size(self.value_heads),
            key_dim: size(self.state_dim),
            value_dim: size(self.head_dim),
            grouped: rule != RecurrentRule::Delta { grouped: false },
            rule: match rule {
                RecurrentRule::Delta { .. } => ScanRule::Delta,
                _ => ScanRule::Linear,
            },
        }
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

impl Planner<'_> {
    /// The tensors of the recurrent part of a layer.
    pub(super) fn recurrent(
        &mut self,
        layer: u32,
        recurrent: &RecurrentSynth,
    ) -> Result<(), SynthError> {
        let Some(rule) = self.traits.recurrent else {
            return Ok(());
        };
        let shape = recurrent.shape(rule);
        match rule {
            RecurrentRule::Delta { .. } => self.delta(layer, recurrent, &shape),
            RecurrentRule::Mamba(_) => self.mamba(layer, recurrent, &shape),
            RecurrentRule::Convolution => self.short_conv(layer, recurrent),
        }
    }

    fn delta(
        &mut self,
        layer: u32,
        recurrent: &RecurrentSynth,
        shape: &ScanShape,
    ) -> Result<(), SynthError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
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
        self.taps("ssm_conv1d", layer, recurrent.taps, cols);
        self.vector(name("ssm_dt.bias"), heads, noise(1.0));
        self.vector(name("ssm_a"), heads, decays(heads));
        self.norm(name("ssm_norm.weight"), recurrent.head_dim, 1.0);
        self.matrix(name("ssm_out.weight"), values, dim, Role::Plain, 1.0)
    }

    fn mamba(
        &mut self,
        layer: u32,
        recurrent: &RecurrentSynth,
        shape: &ScanShape,
    ) -> Result<(), SynthError> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (cols, values) = (shape.cols() as u32, shape.value_cols() as u32);
        let (dim, heads) = (self.spec.dim, recurrent.value_heads);
        let rows = values + cols + heads;
        self.matrix(name("ssm_in.weight"), dim, rows, Role::Plain, 1.0)?;
        self.taps("ssm_conv1d", layer, recurrent.taps, cols);
        self.vector(name("ssm_conv1d.bias"), cols, noise(0.2));
        self.vector(name("ssm_dt.bias"), heads, noise(1.0));
        let column = vec![1, heads.into()];
        self.push(name("ssm_a"), column.clone(), Format::F32, decays(heads));
        self.push(name("ssm_d"), column, Format::F32, Fill::Norm { mean: 1.0 });
        let groups = vec![
            u64::from(values / recurrent.key_heads),
            recurrent.key_heads.into(),
        ];
        if recurrent.norm {
            let fill = Fill::Norm { mean: 1.0 };
            self.push(name("ssm_norm.weight"), groups, Format::F32, fill);
        }
        self.matrix(name("ssm_out.weight"), values, dim, Role::Plain, 1.0)
    }

    fn short_conv(&mut self, layer: u32, recurrent: &RecurrentSynth) -> Result<(), SynthError> {
        let name = |part: &str| format!("blk.{layer}.shortconv.{part}.weight");
        let dim = self.spec.dim;
        self.matrix(name("in_proj"), dim, 3 * dim, Role::Plain, 1.0)?;
        self.taps("shortconv.conv", layer, recurrent.taps, dim);
        self.matrix(name("out_proj"), dim, dim, Role::Plain, 1.0)
    }

    fn taps(&mut self, name: &str, layer: u32, taps: u32, cols: u32) {
        let dims = vec![taps.into(), cols.into()];
        let name = format!("blk.{layer}.{name}.weight");
        self.push(name, dims, Format::F32, noise(TAP_SPREAD));
    }
}

/// From heads that remember hundreds of tokens to heads that remember a few.
fn decays(heads: u32) -> Fill {
    let slow = |head: u32| -0.01 - 0.5 * head as f32 / heads as f32;
    Fill::Values((0..heads).map(slow).collect())
}

fn noise(deviation: f32) -> Fill {
    Fill::Noise {
        format: Format::F32,
        deviation,
    }
}
