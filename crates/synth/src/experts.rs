//! Experts of a synthetic model.

use super::spec::{RopeScaling, RopeSynth, SynthSpec};
use weights::config::Architecture;

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
            Architecture::Qwen3Moe => (8, 3, 64, 0),
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
