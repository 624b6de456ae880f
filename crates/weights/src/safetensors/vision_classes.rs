//! Classes of transformers that see images: the projector of each, and the names of its tower's tensors.

use super::SafetensorsError;
use super::fields::Fields;
use super::gemma4_towers::GEMMA4_CLASSES;
use super::llava_towers::LLAVA_CLASSES;
use super::minicpm_towers::MINICPM_CLASSES;
use super::tower_class::{SIGLIP_NUMBERS, SIGLIP_PARTS, TowerClass, plain};
use super::vision_fields::VISION;

/// Tensors outside of layers of Qwen2-VL and Qwen2.5-VL.
const QWEN2_OUTER: &[(&str, &str)] = &[
    ("visual.patch_embed.proj", "v.patch_embd"),
    ("visual.merger.ln_q", "v.post_ln"),
    ("visual.merger.mlp.0", "mm.0"),
    ("visual.merger.mlp.2", "mm.2"),
];

/// Kinds of towers that are read, without those of LLaVA, Gemma 4 and MiniCPM-V.
const TOWER_CLASSES: &[TowerClass] = &[
    TowerClass {
        names: &[
            "Idefics3ForConditionalGeneration",
            "SmolVLMForConditionalGeneration",
        ],
        model_type: "",
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
        model_type: "",
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
        numbers: SIGLIP_NUMBERS,
    },
    TowerClass {
        names: &[
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        ],
        model_type: "",
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
        model_type: "",
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
        model_type: "",
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
        model_type: "",
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
        model_type: "",
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
    ("DeepseekOCRForCausalLM", "deepseekocr"),
    ("DeepseekOcr2ForConditionalGeneration", "deepseekocr"),
    ("Glm4vForConditionalGeneration", "glm4v"),
    ("Idefics2ForConditionalGeneration", "idefics2"),
    ("PaliGemmaForConditionalGeneration", "paligemma"),
    ("Phi4MultimodalForCausalLM", "phi4"),
    ("KimiVLForConditionalGeneration", "kimivl"),
    (
        "MiniCPMV4_7ForConditionalGeneration",
        "minicpmv4_7, whose rows have places on a canvas,",
    ),
    ("Granite4VisionForConditionalGeneration", "granite4_vision"),
    ("LlavaOnevisionForConditionalGeneration", "llava_onevision"),
];

/// All kinds of towers that are read.
fn all() -> impl Iterator<Item = &'static TowerClass> {
    let all = TOWER_CLASSES.iter().chain(LLAVA_CLASSES);
    all.chain(GEMMA4_CLASSES).chain(MINICPM_CLASSES)
}

/// Whether models of a class have a tower that is read.
pub(super) fn has_tower(class: &str) -> bool {
    all().any(|tower| tower.names.contains(&class))
}

/// The kind of tower of a class. A class with towers of several kinds has one of the `model_type` in `vision_config`.
pub(super) fn find(
    class: &str,
    root: &Fields<'_>,
) -> Result<Option<&'static TowerClass>, SafetensorsError> {
    const TYPE: &str = "model_type";
    let of_class = || all().filter(|tower| tower.names.contains(&class));
    let vision = root.object(VISION)?;
    let found = match &vision {
        Some(vision) => vision.text(TYPE)?,
        None => None,
    };
    let Some(usual) = of_class().next() else {
        return Ok(None);
    };
    let Some(found) = found.filter(|_| !usual.model_type.is_empty()) else {
        return Ok(Some(usual));
    };
    let types: Vec<&str> = of_class().map(|tower| tower.model_type).collect();
    match of_class().find(|tower| tower.model_type == found) {
        Some(tower) => Ok(Some(tower)),
        None => {
            let why = format!("is {found:.64}, must be {}", types.join(" or "));
            Err(root.wrong(&format!("{VISION}.{TYPE}"), why))
        }
    }
}

/// Why a class has no tower that is read, if it has one.
pub(super) fn refusal(class: &str) -> Option<String> {
    let (_, projector) = OTHER_CLASSES.iter().find(|(name, _)| *name == class)?;
    let others = if class.starts_with("MiniCPM") {
        "; MiniCPM-V 2.5, 2.6, 4.0, 4.5 and 4.6 are"
    } else {
        ""
    };
    Some(format!(
        "is {class}, whose projector {projector} is not computed{others}"
    ))
}

/// Whether a stored name is that of a tensor of any tower.
pub(super) fn is_of_tower(stored: &str) -> bool {
    let name = plain(stored);
    let starts = all().flat_map(|class| class.starts);
    starts.into_iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safetensors::names::Named;

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
            let class = all().find(|class| class.projector == projector).unwrap();
            let found = class.named(&[8, 16, 24], theirs);
            assert_eq!(found, Named::Tensor(ours.to_owned()), "{theirs}");
            assert!(is_of_tower(theirs), "{theirs}");
            if let Some(stored) = class.stored(ours) {
                assert_eq!(class.named(&[], &stored), Named::Tensor(ours.to_owned()));
            }
        }
    }

    fn of_name(class: &str) -> &'static TowerClass {
        all().find(|tower| tower.names.contains(&class)).unwrap()
    }

    #[test]
    fn text_is_no_part_and_other_tensors_of_a_tower_are_unknown() {
        let class = of_name("Gemma3ForConditionalGeneration");
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
        let qwen = of_name("Qwen3VLForConditionalGeneration");
        let beyond = "model.visual.deepstack_merger_list.3.norm.weight";
        assert_eq!(qwen.named(&[8, 16, 24], beyond), Named::Unknown);
    }
}
