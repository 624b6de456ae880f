//! Synthetic models whose layers differ: Gemma 3n and 4.

use super::experts::ExpertsSynth;
use super::mix::Mix;
use super::spec::{RopeSynth, SynthSpec};
use weights::config::Architecture;
use weights::gguf::GgufWriter;

/// How the layers of a synthetic model differ, and what they add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayersSynth {
    /// Elements of a head in layers with a window; `head_dim` is that of the others.
    pub local_head_dim: u32,
    /// Key and value heads of layers without a window; `kv_heads` is that of the others.
    pub global_kv_heads: u32,
    /// Whether layers without a window have no value projection.
    pub keys_as_values: bool,
    /// Layers at the end that read keys and values of earlier ones, and whose feed-forward part is twice as wide.
    pub shared: u32,
    /// Width of the embeddings that each layer adds; 0 for none.
    pub per_layer: u32,
}

impl LayersSynth {
    /// How the layers of a tiny model differ.
    pub(super) fn tiny(architecture: Architecture) -> Option<Self> {
        let gemma4 = Self {
            local_head_dim: 16,
            global_kv_heads: 1,
            keys_as_values: false,
            shared: 3,
            per_layer: 32,
        };
        match architecture {
            Architecture::Gemma4 => Some(gemma4),
            // llama.cpp knows no other width, and no other number of layers that store.
            Architecture::Gemma3n => Some(Self {
                local_head_dim: 32,
                global_kv_heads: 2,
                shared: 2,
                per_layer: 256,
                ..gemma4
            }),
            _ => None,
        }
    }
}

/// Sizes of a synthetic layer.
pub(super) struct LayerSizes {
    pub(super) head_dim: u32,
    pub(super) kv_heads: u32,
    pub(super) ffn: u32,
    /// Whether there is a value projection.
    pub(super) has_values: bool,
}

impl SynthSpec {
    pub(super) fn sizes_of(&self, layer: u32) -> LayerSizes {
        let mut sizes = LayerSizes {
            head_dim: self.head_dim,
            kv_heads: self.kv_heads,
            ffn: self.ffn,
            has_values: true,
        };
        if let Some(layers) = &self.differing {
            let is_shared = layer >= self.layers - layers.shared;
            if is_shared && !self.architecture.traits().altup {
                sizes.ffn *= 2;
            }
            if self.is_windowed(layer) {
                sizes.head_dim = layers.local_head_dim;
            } else {
                sizes.kv_heads = layers.global_kv_heads;
                sizes.has_values = !layers.keys_as_values;
            }
        }
        sizes
    }

    /// As Gemma 4 31B: without per-layer embeddings and shared layers, and keys are values in layers without a window.
    pub(super) fn like_31b(self) -> Self {
        let layers = self.differing.map(|layers| LayersSynth {
            keys_as_values: true,
            shared: 0,
            per_layer: 0,
            ..layers
        });
        Self {
            differing: layers,
            ..self
        }
    }

    /// As Gemma 4 26B A4B: the same, with experts beside the feed-forward part.
    pub(super) fn like_26b(self) -> Self {
        let experts = ExpertsSynth {
            count: 8,
            used: 3,
            ffn: self.ffn / 2,
            shared: 0,
        };
        Self {
            experts: Some(experts),
            ..self.like_31b()
        }
    }

    pub(super) fn gemma4_e2b() -> Self {
        Self {
            dim: 1536,
            layers: 35,
            heads: 8,
            kv_heads: 1,
            head_dim: 512,
            ffn: 6144,
            window: Some(512),
            window_period: Some(5),
            differing: Some(LayersSynth {
                local_head_dim: 256,
                global_kv_heads: 1,
                keys_as_values: false,
                shared: 20,
                per_layer: 256,
            }),
            ..Self::gemma4()
        }
    }

    pub(super) fn gemma4_26b_a4b_slice() -> Self {
        Self {
            dim: 2816,
            layers: 6,
            heads: 16,
            kv_heads: 8,
            head_dim: 512,
            ffn: 2112,
            window: Some(1024),
            window_period: Some(6),
            experts: Some(ExpertsSynth {
                count: 128,
                used: 8,
                ffn: 704,
                shared: 0,
            }),
            differing: Some(LayersSynth {
                local_head_dim: 256,
                global_kv_heads: 2,
                keys_as_values: true,
                shared: 0,
                per_layer: 0,
            }),
            ..Self::gemma4()
        }
    }

    /// Sizes that all models of Gemma 4 share.
    fn gemma4() -> Self {
        Self {
            vocab: 262_144,
            context: 131_072,
            mix: Mix::Q4_K_M,
            rope: RopeSynth::plain(1e6),
            ..Self::tiny(Architecture::Gemma4)
        }
    }

    /// Whether a layer of a model whose layers differ has a window.
    fn is_windowed(&self, layer: u32) -> bool {
        let period = self.window_period.unwrap_or(6);
        self.window.is_some() && !(layer + 1).is_multiple_of(period)
    }

    /// Whether such a model has both kinds of layers before those that share them.
    pub(super) fn has_sources(&self) -> bool {
        self.differing.is_none_or(|layers| {
            let stored = 0..self.layers.saturating_sub(layers.shared);
            let kinds = [true, false].map(|kind| {
                let is_kind = |layer: u32| self.is_windowed(layer) == kind;
                stored.clone().any(is_kind) || !(stored.end..self.layers).any(is_kind)
            });
            layers.shared < self.layers && kinds == [true, true]
        })
    }

    /// Keys of a model whose layers differ.
    pub(super) fn put_layers(&self, out: &mut GgufWriter) {
        let Some(layers) = &self.differing else {
            return;
        };
        let key = |part: &str| format!("{}.{part}", self.architecture.name());
        let each = |number: fn(&LayerSizes) -> u32| -> Vec<i32> {
            let sizes = (0..self.layers).map(|layer| self.sizes_of(layer));
            sizes.map(|sizes| number(&sizes) as i32).collect()
        };
        let windowed: Vec<i32> = (0..self.layers)
            .map(|layer| self.is_windowed(layer).into())
            .collect();
        out.i32s(&key("feed_forward_length"), &each(|sizes| sizes.ffn))
            .i32s(
                &key("attention.head_count_kv"),
                &each(|sizes| sizes.kv_heads),
            )
            .i32s(&key("attention.sliding_window_pattern"), &windowed)
            .u32(&key("attention.key_length_swa"), layers.local_head_dim)
            .u32(&key("attention.value_length_swa"), layers.local_head_dim)
            .u32(&key("attention.shared_kv_layers"), layers.shared)
            .u32(&key("rope.dimension_count_swa"), layers.local_head_dim)
            .f32(&key("rope.freq_base_swa"), 10_000.0)
            .f32(&key("final_logit_softcapping"), 30.0)
            .u32(&key("embedding_length_per_layer_input"), layers.per_layer);
    }

    /// Divisors of the rope's frequencies in layers without a window, of which a quarter of a head turns.
    pub(super) fn proportional_factors(&self) -> Vec<f32> {
        let pairs = self.head_dim / 2;
        (0..pairs)
            .map(|pair| if pair < pairs / 4 { 1.0 } else { 1e30 })
            .collect()
    }
}
