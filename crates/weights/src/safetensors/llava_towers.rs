//! Towers of LLaVA 1.5 and 1.6, Granite Vision, Pixtral and Mistral 3: the names of their tensors, and their fields in
//! `config.json`.
//!
//! Fields and defaults are those of transformers' `LlavaConfig`, `LlavaNextConfig`, `Mistral3Config`, `CLIPVisionConfig`,
//! `SiglipVisionConfig` and `PixtralVisionConfig`.

use super::SafetensorsError;
use super::added_tokens::{self, TOKENIZER};
use super::conversion::Change;
use super::described::ModelDescription;
use super::family::Family;
use super::fields::Fields;
use super::header::{Shard, TensorShape};
use super::names::HEAD;
use super::nested;
use super::tensor::{Data, Tensor};
use super::tower_class::{SIGLIP_NUMBERS, SIGLIP_PARTS, TowerClass};
use super::vision_fields::{TowerDraft, VISION};
use crate::Architecture;
use serde_json::Value;
use std::path::Path;

/// Epsilon of the norms of Pixtral's tower, which no field names.
pub(super) const PIXTRAL_EPS: f64 = 1e-5;
/// Classes of transformers.
const LLAVA: &str = "LlavaForConditionalGeneration";
const LLAVA_NEXT: &str = "LlavaNextForConditionalGeneration";
const MISTRAL3: &str = "Mistral3ForConditionalGeneration";
/// Sizes of pictures of tiles, as heights and widths, of a file that names none.
const PINPOINTS: [[u32; 2]; 5] = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]];
/// The mark at the end of a line of an image's rows.
const LINE_END: &str = "[IMG_BREAK]";
/// The embedding of the text, without what versions of transformers put before the name.
const EMBEDDING: &str = "model.embed_tokens.weight";

/// Tensors of CLIP outside of layers.
const CLIP_OUTER: &[(&str, &str)] = &[
    ("vision_tower.embeddings.patch_embedding", "v.patch_embd"),
    (
        "vision_tower.embeddings.position_embedding",
        "v.position_embd",
    ),
    ("vision_tower.pre_layrnorm", "v.pre_ln"),
    ("multi_modal_projector.linear_1", "mm.0"),
    ("multi_modal_projector.linear_2", "mm.2"),
];
/// Of SigLIP, a norm after the layers and a head, which LLaVA does not use.
const SIGLIP_UNUSED: &[&str] = &["vision_tower.post_layernorm.", "vision_tower.head."];
/// `model_type` of SigLIP's tower.
pub(super) const SIGLIP: &str = "siglip_vision_model";
const CLIP_NUMBERS: &[(&str, &str, u32)] = &[
    ("hidden_size", "embedding_length", 768),
    ("intermediate_size", "feed_forward_length", 3072),
    ("num_hidden_layers", "block_count", 12),
    ("num_attention_heads", "attention.head_count", 12),
    ("patch_size", "patch_size", 32),
    ("image_size", "image_size", 224),
];
const CLASS_TOKEN: (&str, &str) = ("vision_tower.embeddings.class_embedding", "v.class_embd");
const NEWLINE: (&str, &str) = ("image_newline", "v.image_newline");

/// LLaVA 1.5 and 1.6, whose lines of rows have an end.
const OF_CLIP: TowerClass = TowerClass {
    names: &[LLAVA, LLAVA_NEXT],
    model_type: "clip_vision_model",
    projector: "mlp",
    starts: &["vision_tower.", "multi_modal_projector.", NEWLINE.0],
    unused: &["vision_tower.post_layernorm."],
    outer: CLIP_OUTER,
    bare: &[CLASS_TOKEN, NEWLINE],
    layers: "vision_tower.encoder.layers.",
    bare_parts: &[],
    parts: SIGLIP_PARTS,
    numbers: CLIP_NUMBERS,
};

/// LLaVA with CLIP's tower and with SigLIP's; and Pixtral's tower, in LLaVA's class and in its own.
pub(super) const LLAVA_CLASSES: &[TowerClass] = &[
    OF_CLIP,
    TowerClass {
        model_type: SIGLIP,
        unused: SIGLIP_UNUSED,
        bare: &[NEWLINE],
        numbers: SIGLIP_NUMBERS,
        ..OF_CLIP
    },
    TowerClass {
        names: &[LLAVA, MISTRAL3],
        model_type: "pixtral",
        projector: "pixtral",
        starts: &["vision_tower.", "multi_modal_projector."],
        unused: &[],
        outer: &[
            ("vision_tower.patch_conv", "v.patch_embd"),
            ("vision_tower.ln_pre", "v.pre_ln"),
            ("multi_modal_projector.norm", "mm.input_norm"),
            (
                "multi_modal_projector.patch_merger.merging_layer",
                "mm.patch_merger",
            ),
            ("multi_modal_projector.linear_1", "mm.1"),
            ("multi_modal_projector.linear_2", "mm.2"),
        ],
        bare: &[],
        layers: "vision_tower.transformer.layers.",
        bare_parts: &[],
        parts: &[
            ("attention_norm", "ln1"),
            ("ffn_norm", "ln2"),
            ("attention.q_proj", "attn_q"),
            ("attention.k_proj", "attn_k"),
            ("attention.v_proj", "attn_v"),
            ("attention.o_proj", "attn_out"),
            ("feed_forward.gate_proj", "ffn_gate"),
            ("feed_forward.up_proj", "ffn_up"),
            ("feed_forward.down_proj", "ffn_down"),
        ],
        numbers: &[
            ("hidden_size", "embedding_length", 1024),
            ("intermediate_size", "feed_forward_length", 4096),
            ("num_hidden_layers", "block_count", 24),
            ("num_attention_heads", "attention.head_count", 16),
            ("patch_size", "patch_size", 16),
            ("image_size", "image_size", 1024),
        ],
    },
];

impl TowerDraft<'_> {
    /// Fields of LLaVA 1.5 and 1.6. A tower of SigLIP has no class token to leave out, and its picture is not cut.
    pub(super) fn llava(&mut self, is_siglip: bool) -> Result<(), SafetensorsError> {
        const KEY: &str = "clip.vision.feature_layer";
        self.projector(["mm.0.bias", "mm.2.bias"], true)?;
        let (strategy, size) = if is_siglip {
            ("full", "size")
        } else {
            ("default", "crop_size")
        };
        self.strategy(strategy)?;
        let layers = self.feature_layers(-2)?;
        self.out.i32s(KEY, &layers);
        let image = self.edge("image_size")?.unwrap_or(224);
        for edge in ["height", "width"] {
            self.same(size, edge, image)?;
        }
        if self.is_class(LLAVA_NEXT)? {
            self.needs.push("v.image_newline".to_owned());
            self.pinpoints()?;
        }
        Ok(())
    }

    /// Fields of Pixtral's tower, in each of its classes.
    pub(super) fn pixtral(&mut self) -> Result<(), SafetensorsError> {
        let is_mistral3 = self.is_class(MISTRAL3)?;
        self.projector(["mm.1.bias", "mm.2.bias"], !is_mistral3)?;
        if !is_mistral3 {
            self.strategy("full")?;
        }
        let layers = self.vision.number("num_hidden_layers")?.unwrap_or(24);
        let usual = if is_mistral3 { -1 } else { -2 };
        let &[layer] = &self.feature_layers(usual)?[..] else {
            let why = "names several layers, must be -1, the last";
            return Err(self.root.wrong("vision_feature_layer", why));
        };
        if layer as u32 != layers {
            let why = format!("names layer {layer} of {layers}, must be -1, the last");
            return Err(self.root.wrong("vision_feature_layer", why));
        }
        let mut merge = 1;
        if is_mistral3 {
            merge = self.root.number("spatial_merge_size")?.unwrap_or(2);
        }
        self.number("spatial_merge_size", merge);
        if merge > 1 {
            self.merger_epsilon()?;
        }
        let patch = self.edge("patch_size")?.unwrap_or(16);
        for edge in ["height", "width"] {
            self.equal(edge, patch)?;
        }
        self.theta("axial")?;
        self.heads = self.vision.number("num_attention_heads")?.unwrap_or(16);
        self.head_dim(self.heads, 1024, None)?;
        let Some(token) = added_tokens::find(self.folder, LINE_END)? else {
            let path = self.folder.join(TOKENIZER);
            let why =
                format!("`added_tokens` has no {LINE_END}, which ends a line of an image's rows");
            return Err(SafetensorsError::file(&path, why));
        };
        self.line_end = Some(token);
        Ok(())
    }

    /// The longer edge of the largest picture: that of the image processor, within the tower's.
    pub(super) fn longest_edge(&self, image: u32) -> Result<u32, SafetensorsError> {
        match (
            self.processor_number("size", "longest_edge")?,
            &self.processor,
        ) {
            (Some(longest), Some(processor)) if longest > image => {
                let why =
                    format!("is {longest}, must be at most {image}, `image_size` of `{VISION}`");
                Err(processor.wrong("size.longest_edge", why))
            }
            (Some(longest), _) => Ok(longest),
            (None, _) => Ok(image),
        }
    }

    /// Fields that the projectors of all classes share. `biases`: their names, in a model of a class where they are usual or not.
    fn projector(&mut self, biases: [&str; 2], usual: bool) -> Result<(), SafetensorsError> {
        const ACTIVATION: &str = "projector_hidden_act";
        let width = self.text_width()?;
        self.number("projection_dim", width);
        if let Some(other) = self.root.text(ACTIVATION)?.filter(|found| *found != "gelu") {
            let why = format!("is {other:.64}, must be gelu");
            return Err(self.root.wrong(ACTIVATION, why));
        }
        if self
            .root
            .flag("multimodal_projector_bias")?
            .unwrap_or(usual)
        {
            self.needs.extend(biases.map(str::to_owned));
        }
        Ok(())
    }

    /// Which rows of the tower the projector takes.
    fn strategy(&self, wanted: &str) -> Result<(), SafetensorsError> {
        const FIELD: &str = "vision_feature_select_strategy";
        let found = self.root.text(FIELD)?.unwrap_or("default");
        if found == wanted {
            return Ok(());
        }
        let why = format!("is {found:.64}, must be {wanted} with this tower");
        Err(self.root.wrong(FIELD, why))
    }

    /// The layers whose outputs the projector takes, counted from 1: one, or several side by side, among which may be the input
    /// of the first, 0.
    fn feature_layers(&self, usual: i64) -> Result<Vec<i32>, SafetensorsError> {
        const FIELD: &str = "vision_feature_layer";
        let layers = match self.vision.number("num_hidden_layers")? {
            Some(layers) => i64::from(layers),
            None if usual == -2 => 12,
            None => 24,
        };
        let usual = Value::from(usual);
        let found = self.root.get(FIELD).unwrap_or(&usual);
        let (all, least) = match found {
            Value::Array(all) => (&all[..], 0),
            one => (std::slice::from_ref(one), 1),
        };
        let bounds = least..=layers.min(i64::from(i32::MAX));
        let computed = |layer: &Value| {
            let layer = match layer.as_i64()? {
                layer @ 0.. => layer,
                layer => (layers + 1).saturating_add(layer),
            };
            bounds.contains(&layer).then_some(layer as i32)
        };
        let computed: Option<Vec<i32>> = all.iter().map(computed).collect();
        computed.filter(|all| !all.is_empty()).ok_or_else(|| {
            let found: String = found.to_string().chars().take(64).collect();
            let why =
                format!("is {found}, must be layers of {least} to {layers} or -{layers} to -1");
            self.root.wrong(FIELD, why)
        })
    }

    /// The sizes of LLaVA 1.6's pictures of tiles, which the image processor names, too.
    fn pinpoints(&mut self) -> Result<(), SafetensorsError> {
        const FIELD: &str = "image_grid_pinpoints";
        let pair = |value: &Value| match value.as_array()?.as_slice() {
            [height, width] => {
                let edge = |value: &Value| value.as_u64().and_then(|edge| i32::try_from(edge).ok());
                Some([edge(height)?, edge(width)?])
            }
            _ => None,
        };
        let read = |fields: &Fields<'_>| match fields.get(FIELD) {
            None => Ok(None),
            Some(value) => {
                let pairs = value.as_array().and_then(|pairs| {
                    let pairs = pairs.iter().map(pair);
                    pairs.collect::<Option<Vec<[i32; 2]>>>()
                });
                let wrong = || fields.wrong(FIELD, "must be a list of heights and widths");
                pairs.map(Some).ok_or_else(wrong)
            }
        };
        let usual = || {
            PINPOINTS
                .map(|edges| edges.map(|edge| edge as i32))
                .to_vec()
        };
        let pairs = read(self.root)?.unwrap_or_else(usual);
        if let Some(processor) = &self.processor
            && read(processor)?.is_some_and(|other| other != pairs)
        {
            let why = format!("must be {pairs:?}, as in `config.json`");
            return Err(processor.wrong(FIELD, why));
        }
        let edges: Vec<i32> = pairs
            .iter()
            .flat_map(|[height, width]| [*width, *height])
            .collect();
        self.out.i32s(&format!("clip.vision.{FIELD}"), &edges);
        Ok(())
    }

    /// The norm of the neighbors has the text's epsilon, and is computed with the tower's.
    fn merger_epsilon(&self) -> Result<(), SafetensorsError> {
        const FIELD: &str = "rms_norm_eps";
        let found = nested::text_float(self.root, FIELD)?;
        if found.is_none_or(|found| found == PIXTRAL_EPS) {
            return Ok(());
        }
        let found = found.unwrap_or_default();
        let why = format!("is {found}, must be {PIXTRAL_EPS}, as in the tower");
        Err(self.root.wrong(&format!("text_config.{FIELD}"), why))
    }

    fn equal(&self, edge: &str, patch: u32) -> Result<(), SafetensorsError> {
        match (self.processor_number("patch_size", edge)?, &self.processor) {
            (Some(found), Some(processor)) if found != patch => {
                let why = format!("is {found}, must be {patch} as `patch_size` of `{VISION}`");
                Err(processor.wrong(&format!("patch_size.{edge}"), why))
            }
            _ => Ok(()),
        }
    }

    fn is_class(&self, class: &str) -> Result<bool, SafetensorsError> {
        let named = self.root.texts("architectures")?.unwrap_or_default();
        Ok(named.first() == Some(&class))
    }
}

/// Whether a class takes from its text that the embedding is the projection, too, where it says otherwise itself.
pub(super) fn takes_tie_of_text(root: &Fields<'_>) -> Result<bool, SafetensorsError> {
    let named = root.texts("architectures")?.unwrap_or_default();
    let class = named.first();
    Ok(class == Some(&LLAVA))
}

/// The row at the end of a line of an image's rows: the embedding of a token of the text.
pub(super) fn line_end(
    token: u32,
    config: &Path,
    shards: &[Shard],
) -> Result<Tensor, SafetensorsError> {
    let place = shards.iter().enumerate().find_map(|(number, shard)| {
        let mut entries = shard.entries.iter();
        let is_embedding = |name: &str| nested::text_name(name).as_deref() == Some(EMBEDDING);
        let at = entries.position(|entry| is_embedding(&entry.name))?;
        Some((number as u16, at as u32))
    });
    let Some(place) = place else {
        return Err(SafetensorsError::tensor(config, EMBEDDING, "is missing"));
    };
    let shard = &shards[usize::from(place.0)];
    let entry = &shard.entries[place.1 as usize];
    let wrong = |why: String| SafetensorsError::tensor(&shard.path, &entry.name, why);
    let (&[rows, cols], Some(format)) = (entry.shape.as_slice(), entry.kind.format()) else {
        return Err(wrong("must have two dimensions, of floats".to_owned()));
    };
    if u64::from(token) >= rows {
        let why = format!("has {rows} rows, must have one for token {token}, {LINE_END}");
        return Err(wrong(why));
    }
    Ok(Tensor {
        name: "v.token_embd.img_break".to_owned(),
        dims: TensorShape::one(cols),
        kind: format.into(),
        data: Data::Rows {
            place,
            rows: vec![token],
        },
        change: Change::None,
    })
}

/// Whether a model of Mistral's family that says to have no projection of its own has one. Transformers writes its class's
/// default next to the projection of a file that named nothing, and uses the projection.
pub(super) fn has_own_head(described: &ModelDescription, shards: &[Shard]) -> bool {
    use Architecture::{Llama, Mistral3};
    let is_text = matches!(described.family, Family::Decoder(Llama | Mistral3));
    let mut entries = shards.iter().flat_map(|shard| &shard.entries);
    is_text && entries.any(|entry| nested::text_name(&entry.name).as_deref() == Some(HEAD))
}
