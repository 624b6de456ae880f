//! The tower of Gemma 4, and what takes its place in 12B: the names of their tensors, and their fields in `config.json`.
//!
//! Fields and defaults are those of transformers' `Gemma4VisionConfig` and `Gemma4UnifiedVisionConfig`.

use super::SafetensorsError;
use super::tower_class::{BOUNDS, TowerClass};
use super::vision_fields::TowerDraft;
use crate::config::limits::LAYERS;

/// Tensors of an encoder of sound, which nothing reads.
const SOUND: [&str; 2] = ["audio_tower.", "embed_audio."];
const PROJECTION: (&str, &str) = ("embed_vision.embedding_projection", "mm.input_projection");
/// Patches along an edge that become one row, where a file does not say.
const POOLED: u32 = 3;
/// The default of `patch_size`.
const PATCH: u32 = 16;

/// E2B, E4B, 26B and 31B; and 12B, which has a matrix of patches alone.
pub(super) const GEMMA4_CLASSES: &[TowerClass] = &[
    TowerClass {
        names: &["Gemma4ForConditionalGeneration"],
        model_type: "gemma4_vision",
        projector: "gemma4v",
        starts: &["vision_tower.", "embed_vision.", SOUND[0], SOUND[1]],
        unused: &SOUND,
        outer: &[
            ("vision_tower.patch_embedder.input_proj", "v.patch_embd"),
            PROJECTION,
        ],
        bare: &[
            (
                "vision_tower.patch_embedder.position_embedding_table",
                "v.position_embd.weight",
            ),
            ("vision_tower.std_bias", "v.std_bias"),
            ("vision_tower.std_scale", "v.std_scale"),
        ],
        layers: "vision_tower.encoder.layers.",
        bare_parts: &[],
        parts: &[
            ("input_layernorm", "ln1"),
            ("post_attention_layernorm", "attn_post_norm"),
            ("pre_feedforward_layernorm", "ln2"),
            ("post_feedforward_layernorm", "ffn_post_norm"),
            ("self_attn.q_norm", "attn_q_norm"),
            ("self_attn.k_norm", "attn_k_norm"),
            ("self_attn.q_proj.linear", "attn_q"),
            ("self_attn.k_proj.linear", "attn_k"),
            ("self_attn.v_proj.linear", "attn_v"),
            ("self_attn.o_proj.linear", "attn_out"),
            ("mlp.gate_proj.linear", "ffn_gate"),
            ("mlp.up_proj.linear", "ffn_up"),
            ("mlp.down_proj.linear", "ffn_down"),
        ],
        numbers: &[
            ("hidden_size", "embedding_length", 768),
            ("intermediate_size", "feed_forward_length", 3072),
            ("num_hidden_layers", "block_count", 16),
            ("num_attention_heads", "attention.head_count", 12),
            ("patch_size", "patch_size", PATCH),
            ("pooling_kernel_size", "projector.scale_factor", POOLED),
        ],
    },
    TowerClass {
        names: &["Gemma4UnifiedForConditionalGeneration"],
        model_type: "gemma4_unified_vision",
        projector: "gemma4uv",
        starts: &["vision_embedder.", "embed_vision.", SOUND[0], SOUND[1]],
        unused: &SOUND,
        outer: &[
            ("vision_embedder.patch_dense", "v.patch_embd"),
            ("vision_embedder.patch_ln1", "v.patch_norm.1"),
            ("vision_embedder.patch_ln2", "v.patch_norm.2"),
            ("vision_embedder.pos_norm", "v.patch_norm.3"),
            PROJECTION,
        ],
        bare: &[("vision_embedder.pos_embedding", "v.position_embd.weight")],
        layers: "vision_embedder.layers.",
        bare_parts: &[],
        parts: &[],
        numbers: &[
            ("mm_embed_dim", "embedding_length", 3840),
            ("patch_size", "patch_size", PATCH),
            ("pooling_kernel_size", "projector.scale_factor", POOLED),
        ],
    },
];

impl TowerDraft<'_> {
    /// Fields of the tower of E2B, E4B, 26B and 31B.
    pub(super) fn gemma4v(&mut self) -> Result<(), SafetensorsError> {
        self.gemma4uv()?;
        let heads = self.vision.number("num_attention_heads")?.unwrap_or(12);
        let kv_heads = self.vision.number("num_key_value_heads")?.unwrap_or(12);
        if heads != kv_heads {
            let why = format!("is {kv_heads}, must be {heads}, as `num_attention_heads`");
            return Err(self.vision.wrong("num_key_value_heads", why));
        }
        self.head_dim(heads, 768, Some(64))?;
        self.theta("axial")?;
        if self.vision.flag("attention_bias")? == Some(true) {
            let why = "is true, which is not supported";
            return Err(self.vision.wrong("attention_bias", why));
        }
        if self.vision.flag("standardize")? == Some(true) {
            self.needs
                .extend(["v.std_bias", "v.std_scale"].map(str::to_owned));
        }
        if self.vision.flag("use_clipped_linears")? == Some(true) {
            self.needs_bounds()?;
        }
        Ok(())
    }

    /// Fields of 12B's matrix of patches, which the tower has, too.
    pub(super) fn gemma4uv(&mut self) -> Result<(), SafetensorsError> {
        let width = self.text_width()?;
        self.number("projection_dim", width);
        for (field, usual) in [("patch_size", PATCH), ("pooling_kernel_size", POOLED)] {
            let wanted = self.vision.number(field)?.unwrap_or(usual);
            if let Some(processor) = &self.processor
                && let Some(found) = processor.number(field)?.filter(|found| *found != wanted)
            {
                let why = format!("is {found}, must be {wanted}, as in `config.json`");
                return Err(processor.wrong(field, why));
            }
        }
        Ok(())
    }

    /// Each matrix of a layer has bounds.
    fn needs_bounds(&mut self) -> Result<(), SafetensorsError> {
        const FIELD: &str = "num_hidden_layers";
        let layers = self.vision.number(FIELD)?.unwrap_or(16);
        if layers as usize > LAYERS {
            let why = format!("is {layers}, must be at most {LAYERS}");
            return Err(self.vision.wrong(FIELD, why));
        }
        let parts = [
            "attn_q", "attn_k", "attn_v", "attn_out", "ffn_gate", "ffn_up", "ffn_down",
        ];
        for layer in 0..layers {
            for part in parts {
                let names = BOUNDS.map(|bound| format!("v.blk.{layer}.{part}.{bound}"));
                self.needs.extend(names);
            }
        }
        Ok(())
    }
}
