//! Towers of MiniCPM-V: the names of their tensors, and their fields in `config.json`.
//!
//! Version 4.6 is a class of transformers. The versions before come with code of their own (`configuration_minicpm.py`,
//! `modeling_minicpmv.py`, `resampler.py` and `image_processing_minicpmv.py` next to the published weights), whose fields, defaults
//! and names these are; the numbers of versions are those of llama.cpp's converter.

use super::SafetensorsError;
use super::fields::Fields;
use super::tower_class::{SIGLIP_PARTS, TowerClass};
use super::vision_fields::TowerDraft;
use serde_json::Value;

/// Classes of versions with a resampler; the second has encoders of sound and speech, too.
const WITH_RESAMPLER: [&str; 2] = ["MiniCPMV", "MiniCPMO"];
/// Encoders and decoders of sound.
const SOUND: [&str; 3] = ["apm.", "audio_projection_layer.", "tts."];
/// The class of MiniCPM-OCR.
const OCR: &str = "MiniCPMOcrForConditionalGeneration";
const VERSION: &str = "version";
/// The version of files that name none, and the one that is not read.
const UNNAMED: &str = "2.5";
const FIRST: &str = "2.0";
/// Width of the text and queries of the first version, which does not name itself.
const FIRST_SIZES: (u32, u32) = (2304, 64);
/// Pixels of a slice's edge, and rows of a slice, where no file says.
const SLICE: u32 = 448;
const QUERIES: u32 = 64;

/// Versions with a resampler: the class, `version` in `config.json`, the number in GGUF, and `model_type` of the text, whose fields
/// are those of the whole.
const VERSIONS: [(&str, &str, u32, &str); 6] = [
    (WITH_RESAMPLER[0], UNNAMED, 2, "llama"),
    (WITH_RESAMPLER[0], "2.6", 3, "qwen2"),
    (WITH_RESAMPLER[0], "4.0", 5, "llama"),
    (WITH_RESAMPLER[0], "4.5", 100_045, "qwen3"),
    (WITH_RESAMPLER[1], "2.6", 4, "qwen2"),
    (WITH_RESAMPLER[1], "4.5", 100_045, "qwen3"),
];

/// The version of a model of a class with a resampler, as its number in GGUF, and the `model_type` of its text; `None`: another
/// class.
///
/// # Errors
/// The version is not known, with those that are.
pub(super) fn version(root: &Fields<'_>) -> Result<Option<(u32, &'static str)>, SafetensorsError> {
    let classes = root.texts("architectures")?.unwrap_or_default();
    let is_known = |class: &&str| WITH_RESAMPLER.contains(class);
    let Some(class) = classes.first().copied().filter(is_known) else {
        return Ok(None);
    };
    let named = match root.get(VERSION) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => {
            let why = format!("is {other:.16}, must be a number or text");
            return Err(root.wrong(VERSION, why));
        }
        None => {
            let sizes = (root.number("hidden_size")?, root.number("query_num")?);
            let is_first = sizes == (Some(FIRST_SIZES.0), Some(FIRST_SIZES.1));
            if is_first { FIRST } else { UNNAMED }.to_owned()
        }
    };
    let is_whole = !named.contains('.');
    let full = named + if is_whole { ".0" } else { "" };
    let of_class = || VERSIONS.iter().filter(|(of, ..)| *of == class);
    let found = of_class().find(|(_, name, ..)| *name == full);
    let found = found.map(|(.., key, text)| Some((*key, *text)));
    found.ok_or_else(|| {
        let names: Vec<&str> = of_class().map(|(_, name, ..)| *name).collect();
        let why = format!(
            "is {full:.16} of class {class}, must be one of {}; 4.6 has a class of its own",
            names.join(", ")
        );
        root.wrong(VERSION, why)
    })
}

/// Version 4.6.
const OF_46: TowerClass = TowerClass {
    names: &["MiniCPMV4_6ForConditionalGeneration"],
    model_type: "minicpmv4_6_vision",
    projector: "minicpmv4_6",
    starts: &["vision_tower.", "merger."],
    unused: &[],
    outer: &[
        ("vision_tower.embeddings.patch_embedding", "v.patch_embd"),
        (
            "vision_tower.embeddings.position_embedding",
            "v.position_embd",
        ),
        ("vision_tower.post_layernorm", "v.post_ln"),
        ("vision_tower.vit_merger.layer_norm1", "v.vit_merger.ln1"),
        (
            "vision_tower.vit_merger.self_attn.q_proj",
            "v.vit_merger.attn_q",
        ),
        (
            "vision_tower.vit_merger.self_attn.k_proj",
            "v.vit_merger.attn_k",
        ),
        (
            "vision_tower.vit_merger.self_attn.v_proj",
            "v.vit_merger.attn_v",
        ),
        (
            "vision_tower.vit_merger.self_attn.out_proj",
            "v.vit_merger.attn_out",
        ),
        ("vision_tower.vit_merger.pre_norm", "v.vit_merger.ds_ln"),
        ("vision_tower.vit_merger.linear_1", "v.vit_merger.ds_ffn_up"),
        (
            "vision_tower.vit_merger.linear_2",
            "v.vit_merger.ds_ffn_down",
        ),
        ("merger.mlp.0.pre_norm", "mm.input_norm"),
        ("merger.mlp.0.linear_1", "mm.up"),
        ("merger.mlp.0.linear_2", "mm.down"),
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
};

/// Versions with a resampler, 4.6, and MiniCPM-OCR, which is 4.6 in another mode.
pub(super) const MINICPM_CLASSES: &[TowerClass] = &[
    TowerClass {
        names: &WITH_RESAMPLER,
        model_type: "",
        projector: "resampler",
        starts: &["vpm.", "resampler.", SOUND[0], SOUND[1], SOUND[2]],
        // The first are sines and cosines of places.
        unused: &["resampler.pos_embed", SOUND[0], SOUND[1], SOUND[2]],
        outer: &[
            ("vpm.embeddings.patch_embedding", "v.patch_embd"),
            ("vpm.embeddings.position_embedding", "v.position_embd"),
            ("vpm.post_layernorm", "v.post_ln"),
            ("resampler.kv_proj", "resampler.kv"),
            ("resampler.ln_q", "resampler.ln_q"),
            ("resampler.ln_kv", "resampler.ln_kv"),
            ("resampler.ln_post", "resampler.ln_post"),
            ("resampler.attn.out_proj", "resampler.attn.out"),
        ],
        bare: &[
            ("resampler.query", "resampler.query"),
            ("resampler.proj", "resampler.proj.weight"),
            ("resampler.attn.in_proj_weight", "resampler.attn.qkv.weight"),
            ("resampler.attn.in_proj_bias", "resampler.attn.qkv.bias"),
        ],
        layers: "vpm.encoder.layers.",
        bare_parts: &[],
        parts: SIGLIP_PARTS,
        numbers: &[
            ("hidden_size", "embedding_length", 1152),
            ("intermediate_size", "feed_forward_length", 4304),
            ("num_hidden_layers", "block_count", 27),
            ("num_attention_heads", "attention.head_count", 16),
            ("patch_size", "patch_size", 14),
        ],
    },
    OF_46,
    TowerClass {
        names: &[OCR],
        model_type: "minicpm_ocr_vision",
        ..OF_46
    },
];

/// The field of a key of these towers that has another name in others.
pub(super) fn field_of(projector: &str, key: &str) -> Option<&'static str> {
    let has_slices = ["resampler", "minicpmv4_6"].contains(&projector);
    let known = OUTSIDE.iter().find(|(_, known)| *known == key);
    known.filter(|_| has_slices).map(|(field, _)| *field)
}

/// Fields next to `vision_config`, or of the image processor, and their keys.
pub(super) const OUTSIDE: [(&str, &str); 4] = [
    ("scale_resolution", "clip.vision.image_size"),
    ("max_slice_nums", "clip.vision.preproc_max_tiles"),
    ("insert_layer_id", "clip.vision.wa_layer_indexes"),
    ("query_num", "clip.minicpmv_query_num"),
];

impl TowerDraft<'_> {
    /// Layers of a tower with a resampler: the published code may leave out the last.
    pub(super) fn kept_layers(&self, layers: u32) -> Result<u32, SafetensorsError> {
        let drops = self.root.flag("drop_vision_last_layer")?.unwrap_or(true);
        Ok(layers.saturating_sub(u32::from(drops)))
    }

    /// Fields of a tower with a resampler.
    pub(super) fn resampler(&mut self) -> Result<(), SafetensorsError> {
        const ROWS: &str = "image_feature_size";
        let width = self.text_width()?;
        self.number("projection_dim", width);
        let joined = ["weight", "bias"].map(|kind| format!("resampler.attn.qkv.{kind}"));
        self.needs.extend(joined);
        let queries = self.root.number("query_num")?.unwrap_or(QUERIES);
        self.out.u32("clip.minicpmv_query_num", queries);
        if let Some(processor) = &self.processor
            && let Some(found) = processor.number(ROWS)?.filter(|found| *found != queries)
        {
            let why = format!("is {found}, must be {queries}, as `query_num` in `config.json`");
            return Err(processor.wrong(ROWS, why));
        }
        if let Some((key, _)) = version(self.root)? {
            self.out.u32("clip.minicpmv_version", key);
        }
        self.slices()
    }

    /// Fields of version 4.6 and of MiniCPM-OCR.
    pub(super) fn minicpm46(&mut self) -> Result<(), SafetensorsError> {
        const MODE: &str = "downsample_mode";
        let classes = self.root.texts("architectures")?.unwrap_or_default();
        let is_ocr = classes.first() == Some(&OCR);
        let usual = if is_ocr { "4x" } else { "16x" };
        let width = self.text_width()?;
        self.number("projection_dim", width);
        let mode = self.root.text(MODE)?.unwrap_or(usual);
        let merge = match mode {
            "16x" => 4,
            "4x" => 2,
            other => {
                let why = format!("is {other:.16}, must be 16x or 4x");
                return Err(self.root.wrong(MODE, why));
            }
        };
        // The second is of MiniCPM-OCR.
        for (field, wanted) in [(MODE, mode), ("small_image_upsize", "always")] {
            if let Some(processor) = &self.processor
                && let Some(found) = processor.text(field)?.filter(|found| *found != wanted)
            {
                return Err(processor.wrong(field, format!("is {found:.16}, must be {wanted}")));
            }
        }
        self.number("projector.scale_factor", merge);
        let after = self.root.number("insert_layer_id")?.unwrap_or(6);
        let after = i32::try_from(after).unwrap_or(i32::MAX);
        self.out.i32s("clip.vision.wa_layer_indexes", &[after]);
        for (fields, field) in [
            (self.root, "merge_kernel_size"),
            (self.vision, "window_kernel_size"),
        ] {
            if let Some(found) = fields.numbers(field)?.filter(|found| *found != [2, 2]) {
                return Err(fields.wrong(field, format!("is {found:?}, must be [2, 2]")));
            }
        }
        if let Some(times) = self
            .root
            .number("merger_times")?
            .filter(|times| *times != 1)
        {
            let why = format!("is {times}, must be 1");
            return Err(self.root.wrong("merger_times", why));
        }
        if self.root.flag("drop_vision_last_layer")? == Some(true) {
            let why = "is true, which is not supported";
            return Err(self.root.wrong("drop_vision_last_layer", why));
        }
        self.slices()
    }

    /// The edge of a slice and the number of slices: those of the image processor, else of `config.json`.
    fn slices(&mut self) -> Result<(), SafetensorsError> {
        const PATCH: &str = "patch_size";
        let inner = self.root.object("slice_config")?;
        let number = |field: &str| {
            let all = [self.processor.as_ref(), inner.as_ref()];
            let mut found = all.into_iter().flatten().map(|fields| fields.number(field));
            found.find_map(Result::transpose).transpose()
        };
        let (edge, most) = (number("scale_resolution")?, number("max_slice_nums")?);
        let patch = self.edge(PATCH)?;
        if let Some(processor) = &self.processor {
            let found = processor.number(PATCH)?;
            if let (Some(found), Some(patch)) = (found, patch)
                && found != patch
            {
                let why = format!("is {found}, must be {patch}, as in `vision_config`");
                return Err(processor.wrong(PATCH, why));
            }
            for flag in ["slice_mode", "use_image_id"] {
                if processor.flag(flag)? == Some(false) {
                    return Err(processor.wrong(flag, "is false, which is not supported"));
                }
            }
        }
        self.number("image_size", edge.unwrap_or(SLICE));
        if let Some(most) = most {
            self.number("preproc_max_tiles", most);
        }
        Ok(())
    }
}
