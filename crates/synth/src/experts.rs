//! Experts and latent attention of a synthetic model.

use super::spec::{RopeScaling, RopeSynth, SynthSpec};
use weights::config::Architecture;
use weights::gguf::GgufWriter;

/// The experts of a synthetic model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsSynth {
    /// Experts of a layer.
    pub count: u32,
    /// Experts that a row uses.
    pub used: u32,
    /// Width of an expert.
    pub ffn: u32,
    /// Width of the shared expert; 0 for none.
    pub shared: u32,
}

impl ExpertsSynth {
    /// The experts of a tiny model, none as wide as the feed-forward part of a family without experts.
    pub(super) fn tiny(architecture: Architecture) -> Option<Self> {
        let (count, used, ffn, shared) = match architecture {
            Architecture::DeepSeek2 => (8, 3, 64, 128),
            Architecture::Qwen3Moe | Architecture::Qwen3VlMoe => (8, 3, 64, 0),
            Architecture::Qwen35Moe | Architecture::Qwen3Next => (8, 3, 64, 96),
            Architecture::GraniteMoe => (6, 2, 64, 128),
            Architecture::Olmoe => (8, 4, 64, 0),
            Architecture::GptOss => (8, 4, 64, 0),
            _ => return None,
        };
        Some(Self {
            count,
            used,
            ffn,
            shared,
        })
    }
}

impl SynthSpec {
    /// With experts of half the width, and one that all rows use.
    pub(super) fn with_shared(self) -> Self {
        let experts = ExpertsSynth {
            count: 6,
            used: 2,
            ffn: self.ffn / 2,
            shared: self.ffn,
        };
        Self {
            experts: Some(experts),
            ..self
        }
    }

    /// As Mixtral: experts that are as wide as the feed-forward part.
    pub(super) fn mixtral(self) -> Self {
        let experts = ExpertsSynth {
            count: 8,
            used: 2,
            ffn: self.ffn,
            shared: 0,
        };
        Self {
            experts: Some(experts),
            rope: RopeSynth {
                scaling: RopeScaling::None,
                ..self.rope.clone()
            },
            ..self
        }
    }
}

/// Latent attention of a synthetic model, whose `head_dim` is that of queries and keys, and the router next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentSynth {
    /// Inner width of the query projection; 0 for one matrix.
    pub query_rank: u32,
    /// Elements of a latent.
    pub rank: u32,
    /// Elements of a value head.
    pub value: u32,
    /// Whether key and value projections are one tensor, as in files before April 2025.
    pub joined: bool,
    /// Layers at the beginning without experts.
    pub leading_dense: u32,
    /// Groups of experts, of which a row uses half; 0 for none.
    pub groups: u32,
    /// Whether the router is V3's, with sigmoids, a bias of the choice, and shares with the sum 2.5; else V2 Lite's.
    pub sigmoid: bool,
}

impl LatentSynth {
    /// As DeepSeek V3, in a tiny model.
    pub(super) fn tiny(architecture: Architecture) -> Option<Self> {
        (architecture == Architecture::DeepSeek2).then_some(Self {
            query_rank: 64,
            rank: 64,
            value: 32,
            joined: false,
            leading_dense: 1,
            groups: 4,
            sigmoid: true,
        })
    }

    /// With all sizes four times as large.
    pub(super) fn small(self) -> Self {
        Self {
            query_rank: self.query_rank * 4,
            rank: self.rank * 4,
            value: self.value * 4,
            ..self
        }
    }

    /// Sizes of attention.
    pub(super) fn put_attention(&self, spec: &SynthSpec, out: &mut GgufWriter) {
        let key = |part: &str| format!("{}.attention.{part}", spec.architecture);
        let turned = spec.rope.dims.unwrap_or(spec.head_dim);
        out.u32(&key("head_count"), spec.heads)
            .u32(&key("q_lora_rank"), self.query_rank)
            .u32(&key("kv_lora_rank"), self.rank);
        if self.joined {
            out.u32(&key("head_count_kv"), spec.heads)
                .u32(&key("key_length"), spec.head_dim)
                .u32(&key("value_length"), self.value);
        } else {
            out.u32(&key("head_count_kv"), 1)
                .u32(&key("key_length"), self.rank + turned)
                .u32(&key("value_length"), self.rank)
                .u32(&key("key_length_mla"), spec.head_dim)
                .u32(&key("value_length_mla"), self.value);
        }
    }

    /// The router, and where experts are.
    pub(super) fn put_router(
        &self,
        spec: &SynthSpec,
        experts: &ExpertsSynth,
        out: &mut GgufWriter,
    ) {
        let key = |part: &str| format!("{}.{part}", spec.architecture);
        let (gating, scale) = if self.sigmoid { (2, 2.5) } else { (1, 1.0) };
        out.u32(&key("leading_dense_block_count"), self.leading_dense)
            .u32(&key("expert_shared_count"), experts.shared / experts.ffn)
            .u32(&key("expert_gating_func"), gating)
            .f32(&key("expert_weights_scale"), scale)
            .bool(&key("expert_weights_norm"), self.sigmoid);
        if self.groups > 0 {
            out.u32(&key("expert_group_count"), self.groups)
                .u32(&key("expert_group_used_count"), self.groups / 2);
        }
    }
}

impl SynthSpec {
    /// As DeepSeek V2 Lite, in a file of 2024.
    pub(super) fn like_v2_lite(self) -> Self {
        let latent = self.latent.map(|latent| LatentSynth {
            query_rank: 0,
            joined: true,
            groups: 0,
            sigmoid: false,
            ..latent
        });
        Self { latent, ..self }
    }
}
