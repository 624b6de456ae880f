//! Classes of transformers that see images: the projector of each, and the names of its tower's tensors.

use super::names::{Named, is_number};

/// Classes with one kind of tower.
#[derive(Debug)]
pub(super) struct TowerClass {
    /// Classes of transformers.
    pub(super) names: &'static [&'static str],
    /// The projector's name in GGUF.
    pub(super) projector: &'static str,
    /// Beginnings of names that belong to the tower, without `model.`; other tensors are the text's.
    starts: &'static [&'static str],
    /// Beginnings of names of tensors that are not needed.
    unused: &'static [&'static str],
    /// Tensors outside of layers: `(theirs, ours)`, weights and biases.
    outer: &'static [(&'static str, &'static str)],
    /// Tensors outside of layers, by their whole names.
    bare: &'static [(&'static str, &'static str)],
    /// Text before the number of a layer.
    layers: &'static str,
    /// Parts of a layer that are one tensor, by their whole names.
    bare_parts: &'static [(&'static str, &'static str)],
    /// Parts of a layer, with weights and biases.
    parts: &'static [(&'static str, &'static str)],
    /// Integers of `vision_config`: the field, the key after `clip.vision.`, and the class's default.
    pub(super) numbers: &'static [(&'static str, &'static str, u32)],
}

/// Parts of a layer of SigLIP, CLIP and their heirs.
const SIGLIP_PARTS: &[(&str, &str)] = &[
    ("layer_norm1", "ln1"),
    ("layer_norm2", "ln2"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_out"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
];
/// Text before and after the number of a merger for a further text layer, in GGUF before its layer's.
const DEEPSTACK: (&str, &str) = ("visual.deepstack_merger_list.", "v.deepstack.");
const DEEPSTACK_PARTS: &[(&str, &str)] = &[
    ("norm", "norm"),
    ("linear_fc1", "fc1"),
    ("linear_fc2", "fc2"),
];

/// Tensors outside of layers of Qwen2-VL and Qwen2.5-VL.
const QWEN2_OUTER: &[(&str, &str)] = &[
    ("visual.patch_embed.proj", "v.patch_embd"),
    ("visual.merger.ln_q", "v.post_ln"),
    ("visual.merger.mlp.0", "mm.0"),
    ("visual.merger.mlp.2", "mm.2"),
];

/// All kinds of towers that are read.
pub(super) const TOWER_CLASSES: &[TowerClass] = &[
    TowerClass {
        names: &[
            "Idefics3ForConditionalGeneration",
            "SmolVLMForConditionalGeneration",
        ],
        projector: "idefics3",
        starts: &["vision_model.", "connector."],
        unused: &[],
        outer: &[
            ("vision_model.embeddings.patch_embedding", "v.patch_embd"),
            (
                "vision_model.embeddings.position_embedding",
                "v.position_embd",
            ),
            ("vision_model.post_layernorm", "v.post_ln"),
            ("connector.modality_projection.proj", "mm.model.fc"),
        ],
        bare: &[],
        layers: "vision_model.encoder.layers.",
        bare_parts: &[],
        parts: SIGLIP_PARTS,
        numbers: &[
            ("hidden_size", "embedding_length", 1152),
            ("intermediate_size", "feed_forward_length", 3072),
            ("num_hidden_layers", "block_count", 12),
            ("num_attention_heads", "attention.head_count", 16),
            ("patch_size", "patch_size", 32),
            ("image_size", "image_size", 224),
        ],
    },
    TowerClass {
        names: &["Gemma3ForConditionalGeneration"],
        projector: "gemma3",
        starts: &["vision_tower.", "multi_modal_projector."],
        unused: &["vision_tower.head."],
        outer: &[
            ("vision_tower.embeddings.patch_embedding", "v.patch_embd"),
            (
                "vision_tower.embeddings.position_embedding",
                "v.position_embd",
            ),
            ("vision_tower.post_layernorm", "v.post_ln"),
            ("multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"),
        ],
        bare: &[(
            "multi_modal_projector.mm_input_projection_weight",
            "mm.input_projection.weight",
        )],
        layers: "vision_tower.encoder.layers.",
        bare_parts: &[],
        parts: SIGLIP_PARTS,
        numbers: &[
            ("hidden_size", "embedding_length", 768),
            ("intermediate_size", "feed_forward_length", 3072),
            ("num_hidden_layers", "block_count", 12),
            ("num_attention_heads", "attention.head_count", 12),
            ("patch_size", "patch_size", 16),
            ("image_size", "image_size", 224),
        ],
    },
    TowerClass {
        names: &[
            "Qwen3VLForConditionalGeneration",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ],
        projector: "qwen3vl_merger",
        starts: &["visual."],
        unused: &[],
        outer: &[
            ("visual.patch_embed.proj", "v.patch_embd"),
            ("visual.pos_embed", "v.position_embd"),
            ("visual.merger.norm", "v.post_ln"),
            ("visual.merger.linear_fc1", "mm.0"),
            ("visual.merger.linear_fc2", "mm.2"),
        ],
        bare: &[],
        layers: "visual.blocks.",
        bare_parts: &[],
        parts: &[
            ("norm1", "ln1"),
            ("norm2", "ln2"),
            ("attn.qkv", "attn_qkv"),
            ("attn.proj", "attn_out"),
            ("mlp.linear_fc1", "ffn_up"),
            ("mlp.linear_fc2", "ffn_down"),
        ],
        numbers: &[
            ("hidden_size", "embedding_length", 1152),
            ("intermediate_size", "feed_forward_length", 4304),
            ("depth", "block_count", 27),
            ("num_heads", "attention.head_count", 16),
            ("patch_size", "patch_size", 16),
            ("spatial_merge_size", "spatial_merge_size", 2),
        ],
    },
    TowerClass {
        names: &["Qwen2VLForConditionalGeneration"],
        projector: "qwen2vl_merger",
        starts: &["visual."],
        unused: &[],
        outer: QWEN2_OUTER,
        bare: &[],
        layers: "visual.blocks.",
        bare_parts: &[],
        parts: &[
            ("norm1", "ln1"),
            ("norm2", "ln2"),
            ("attn.qkv", "attn_qkv"),
            ("attn.proj", "attn_out"),
            ("mlp.fc1", "ffn_up"),
            ("mlp.fc2", "ffn_down"),
        ],
        numbers: &[
            ("embed_dim", "embedding_length", 1280),
            ("depth", "block_count", 32),
            ("num_heads", "attention.head_count", 16),
            ("patch_size", "patch_size", 14),
            ("spatial_merge_size", "spatial_merge_size", 2),
        ],
    },
    TowerClass {
        names: &["Qwen2_5_VLForConditionalGeneration"],
        projector: "qwen2.5vl_merger",
        starts: &["visual."],
        unused: &[],
        outer: QWEN2_OUTER,
        bare: &[],
        layers: "visual.blocks.",
        bare_parts: &[],
        parts: &[
            ("norm1", "ln1"),
            ("norm2", "ln2"),
            ("attn.qkv", "attn_qkv"),
            ("attn.proj", "attn_out"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ],
        numbers: &[
            ("hidden_size", "embedding_length", 3584),
            ("intermediate_size", "feed_forward_length", 3420),
            ("depth", "block_count", 32),
            ("num_heads", "attention.head_count", 16),
            ("patch_size", "patch_size", 14),
            ("spatial_merge_size", "spatial_merge_size", 2),
            ("window_size", "window_size", 112),
        ],
    },
    TowerClass {
        names: &["InternVLForConditionalGeneration"],
        projector: "internvl",
        starts: &["vision_tower.", "multi_modal_projector."],
        unused: &["vision_tower.embeddings.mask_token"],
        outer: &[
            (
                "vision_tower.embeddings.patch_embeddings.projection",
                "v.patch_embd",
            ),
            ("multi_modal_projector.layer_norm", "mm.model.mlp.0"),
            ("multi_modal_projector.linear_1", "mm.model.mlp.1"),
            ("multi_modal_projector.linear_2", "mm.model.mlp.3"),
        ],
        bare: &[
            ("vision_tower.embeddings.cls_token", "v.class_embd"),
            (
                "vision_tower.embeddings.position_embeddings",
                "v.position_embd.weight",
            ),
        ],
        layers: "vision_tower.encoder.layer.",
        bare_parts: &[("lambda_1", "ls1.weight"), ("lambda_2", "ls2.weight")],
        parts: &[
            ("layernorm_before", "ln1"),
            ("layernorm_after", "ln2"),
            ("attention.q_proj", "attn_q"),
            ("attention.k_proj", "attn_k"),
            ("attention.v_proj", "attn_v"),
            ("attention.q_norm", "attn_q_norm"),
            ("attention.k_norm", "attn_k_norm"),
            ("attention.projection_layer", "attn_out"),
            ("mlp.fc1", "ffn_up"),
            ("mlp.fc2", "ffn_down"),
        ],
        numbers: &[
            ("hidden_size", "embedding_length", 1024),
            ("intermediate_size", "feed_forward_length", 4096),
            ("num_hidden_layers", "block_count", 24),
            ("num_attention_heads", "attention.head_count", 16),
            ("patch_size", "patch_size", 14),
            ("image_size", "image_size", 448),
        ],
    },
    TowerClass {
        names: &["Lfm2VlForConditionalGeneration"],
        projector: "lfm2",
        starts: &["vision_tower.", "multi_modal_projector."],
        unused: &["vision_tower.head."],
        outer: &[
            ("vision_tower.embeddings.patch_embedding", "v.patch_embd"),
            (
                "vision_tower.embeddings.position_embedding",
                "v.position_embd",
            ),
            ("vision_tower.post_layernorm", "v.post_ln"),
            ("multi_modal_projector.layer_norm", "mm.input_norm"),
            ("multi_modal_projector.linear_1", "mm.1"),
            ("multi_modal_projector.linear_2", "mm.2"),
        ],
        bare: &[],
        layers: "vision_tower.encoder.layers.",
        bare_parts: &[],
        parts: SIGLIP_PARTS,
        numbers: &[
            ("hidden_size", "embedding_length", 768),
            ("intermediate_size", "feed_forward_length", 3072),
            ("num_hidden_layers", "block_count", 12),
            ("num_attention_heads", "attention.head_count", 12),
            ("patch_size", "patch_size", 16),
        ],
    },
];

/// Classes whose projector is not computed, with its name.
const OTHER_CLASSES: &[(&str, &str)] = &[
    ("MllamaForConditionalGeneration", "mllama"),
    ("Llama4ForConditionalGeneration", "llama4"),
    ("Gemma3nForConditionalGeneration", "gemma3nv"),
    ("Gemma4ForConditionalGeneration", "gemma4v"),
    ("LlavaForConditionalGeneration", "mlp"),
    ("LlavaNextForConditionalGeneration", "mlp"),
    ("Mistral3ForConditionalGeneration", "pixtral"),
    ("DeepseekOCRForCausalLM", "deepseekocr"),
    ("DeepseekOcr2ForConditionalGeneration", "deepseekocr"),
    ("Glm4vForConditionalGeneration", "glm4v"),
    ("Idefics2ForConditionalGeneration", "idefics2"),
    ("PaliGemmaForConditionalGeneration", "paligemma"),
    ("Phi4MultimodalForCausalLM", "phi4"),
    ("KimiVLForConditionalGeneration", "kimivl"),
    ("MiniCPMV", "resampler"),
    ("MiniCPMO", "resampler"),
];

/// The kind of tower of a class.
pub(super) fn find(class: &str) -> Option<&'static TowerClass> {
    let mut all = TOWER_CLASSES.iter();
    all.find(|tower| tower.names.contains(&class))
}

/// Why a class has no tower that is read, if it has one.
pub(super) fn refusal(class: &str) -> Option<String> {
    let (_, projector) = OTHER_CLASSES.iter().find(|(name, _)| *name == class)?;
    Some(format!(
        "is {class}, whose projector {projector} is not computed"
    ))
}

/// A name without what versions of transformers put before the tower's.
fn plain(stored: &str) -> std::borrow::Cow<'_, str> {
    const INNER: &str = "vision_tower.vision_model.";
    let stored = stored.strip_prefix("model.").unwrap_or(stored);
    match stored.strip_prefix(INNER) {
        Some(rest) => format!("vision_tower.{rest}").into(),
        None => stored.into(),
    }
}

/// Whether a stored name is that of a tensor of any tower.
pub(super) fn is_of_tower(stored: &str) -> bool {
    let name = plain(stored);
    let starts = TOWER_CLASSES.iter().flat_map(|class| class.starts);
    starts.into_iter().any(|start| name.starts_with(start))
}

impl TowerClass {
    /// GGUF's name for a stored tensor. `deepstack`: the layers after which there are rows for further text layers.
    pub(super) fn named(&self, deepstack: &[u32], stored: &str) -> Named {
        let name = plain(stored);
        let is_unused = self.unused.iter().any(|start| name.starts_with(start));
        // Old files have the numbers of places as a tensor.
        if is_unused || name.ends_with(".position_ids") || !self.starts_any(&name) {
            return Named::Nothing;
        }
        if let Some((_, ours)) = self.bare.iter().find(|(theirs, _)| *theirs == name) {
            return Named::Tensor((*ours).to_owned());
        }
        let bare_part = || {
            let (layer, part) = name.strip_prefix(self.layers)?.split_once('.')?;
            let ours = find_part(self.bare_parts, part).filter(|_| is_number(layer))?;
            Some(format!("v.blk.{layer}.{ours}"))
        };
        if let Some(ours) = bare_part() {
            return Named::Tensor(ours);
        }
        let found = || {
            let (whole, kind) = name.rsplit_once('.')?;
            if !["weight", "bias"].contains(&kind) {
                return None;
            }
            if let Some((_, ours)) = self.outer.iter().find(|(theirs, _)| *theirs == whole) {
                return Some(format!("{ours}.{kind}"));
            }
            if let Some(rest) = whole.strip_prefix(DEEPSTACK.0) {
                let (number, part) = rest.split_once('.')?;
                let layer = deepstack.get(number.parse::<usize>().ok()?)?;
                let ours = find_part(DEEPSTACK_PARTS, part)?;
                return Some(format!("{}{layer}.{ours}.{kind}", DEEPSTACK.1));
            }
            let (layer, part) = whole.strip_prefix(self.layers)?.split_once('.')?;
            let ours = find_part(self.parts, part).filter(|_| is_number(layer))?;
            Some(format!("v.blk.{layer}.{ours}.{kind}"))
        };
        found().map_or(Named::Unknown, Named::Tensor)
    }

    /// The stored name of GGUF's tensor, without what versions of transformers put before it.
    pub(super) fn stored(&self, name: &str) -> Option<String> {
        if let Some((theirs, _)) = self.bare.iter().find(|(_, ours)| *ours == name) {
            return Some((*theirs).to_owned());
        }
        let (whole, kind) = name.rsplit_once('.')?;
        if let Some((theirs, _)) = self.outer.iter().find(|(_, ours)| *ours == whole) {
            return Some(format!("{theirs}.{kind}"));
        }
        let (layer, part) = whole.strip_prefix("v.blk.")?.split_once('.')?;
        let (theirs, _) = self.parts.iter().find(|(_, ours)| *ours == part)?;
        Some(format!("{}{layer}.{theirs}.{kind}", self.layers))
    }

    fn starts_any(&self, name: &str) -> bool {
        self.starts.iter().any(|start| name.starts_with(start))
    }
}

fn find_part(parts: &[(&str, &'static str)], theirs: &str) -> Option<&'static str> {
    let found = parts.iter().find(|(part, _)| *part == theirs);
    found.map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_every_version_of_transformers() {
        let rows = [
            (
                "idefics3",
                "model.vision_model.encoder.layers.3.mlp.fc1.bias",
                "v.blk.3.ffn_up.bias",
            ),
            (
                "idefics3",
                "model.connector.modality_projection.proj.weight",
                "mm.model.fc.weight",
            ),
            (
                "gemma3",
                "vision_tower.vision_model.encoder.layers.0.self_attn.out_proj.weight",
                "v.blk.0.attn_out.weight",
            ),
            (
                "gemma3",
                "vision_tower.post_layernorm.bias",
                "v.post_ln.bias",
            ),
            (
                "gemma3",
                "model.vision_tower.embeddings.patch_embedding.weight",
                "v.patch_embd.weight",
            ),
            (
                "gemma3",
                "model.multi_modal_projector.mm_input_projection_weight",
                "mm.input_projection.weight",
            ),
            (
                "qwen3vl_merger",
                "visual.blocks.26.attn.qkv.bias",
                "v.blk.26.attn_qkv.bias",
            ),
            (
                "qwen3vl_merger",
                "model.visual.deepstack_merger_list.1.linear_fc2.weight",
                "v.deepstack.16.fc2.weight",
            ),
        ];
        for (projector, theirs, ours) in rows {
            let mut classes = TOWER_CLASSES.iter();
            let class = classes.find(|class| class.projector == projector).unwrap();
            let found = class.named(&[8, 16, 24], theirs);
            assert_eq!(found, Named::Tensor(ours.to_owned()), "{theirs}");
            assert!(is_of_tower(theirs), "{theirs}");
            if let Some(stored) = class.stored(ours) {
                assert_eq!(class.named(&[], &stored), Named::Tensor(ours.to_owned()));
            }
        }
    }

    #[test]
    fn text_is_no_part_and_other_tensors_of_a_tower_are_unknown() {
        let class = find("Gemma3ForConditionalGeneration").unwrap();
        for name in [
            "language_model.model.embed_tokens.weight",
            "model.language_model.layers.0.mlp.up_proj.weight",
            "lm_head.weight",
            "vision_tower.vision_model.head.probe",
            "vision_tower.embeddings.position_ids",
        ] {
            assert_eq!(class.named(&[], name), Named::Nothing, "{name}");
        }
        for name in [
            "vision_tower.encoder.layers.x.mlp.fc1.weight",
            "vision_tower.encoder.layers.0.mlp.fc3.weight",
            "vision_tower.encoder.layers.0.mlp.fc1.scale",
            "multi_modal_projector.linear_1.weight",
        ] {
            assert_eq!(class.named(&[], name), Named::Unknown, "{name}");
        }
        let qwen = find("Qwen3VLForConditionalGeneration").unwrap();
        let beyond = "model.visual.deepstack_merger_list.3.norm.weight";
        assert_eq!(qwen.named(&[8, 16, 24], beyond), Named::Unknown);
    }
}
