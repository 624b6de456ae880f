//! Fields of the text of Gemma 4, whose layers differ.
//!
//! Source: transformers' `Gemma4TextConfig` and `Gemma4UnifiedTextConfig`, and llama.cpp's `convert_hf_to_gguf.py`.

use super::SafetensorsError;
use super::described::ModelDescription;
use super::family::Family;
use super::fields::Fields;
use super::gguf_keys::GgufKeys;
use super::hyperparameters;
use crate::Architecture;
use crate::config::limits;
use crate::gguf::GgufWriter;

const LAYERS: &str = "num_hidden_layers";
const HEADS: &str = "num_attention_heads";
const KV_HEADS: &str = "num_key_value_heads";
const GLOBAL_KV_HEADS: &str = "num_global_key_value_heads";
const SHARED: &str = "num_kv_shared_layers";
const HEAD_DIM: &str = "head_dim";
const GLOBAL_HEAD_DIM: &str = "global_head_dim";
const EACH: &str = "per_layer_config";
const PER_LAYER: &str = "hidden_size_per_layer_input";
const BOTH_WAYS: &str = "use_bidirectional_attention";
/// Elements of a head of a layer without a window, where a file names none.
const GLOBAL_DIM: u32 = 512;
/// Layers from one without a window to the next, where a file does not name the kinds of layers.
const PERIOD: usize = 6;
/// Bases of the frequencies of layers without and with a window, and the part of a head that turns without one.
const THETAS: [f64; 2] = [1e6, 1e4];
const TURNING: f64 = 0.25;
/// The divisor of frequencies of pairs that do not turn.
const STANDING: f32 = 1e30;

/// Integers that every model has, with their keys.
const NUMBERS: &[(&str, &str)] = &[
    (LAYERS, "block_count"),
    ("hidden_size", "embedding_length"),
    (HEADS, "attention.head_count"),
    ("max_position_embeddings", "context_length"),
    ("vocab_size", "vocab_size"),
    ("sliding_window", "attention.sliding_window"),
];
/// Further keys, for errors.
const KEYS: &[(&str, &str)] = &[
    (SHARED, "attention.shared_kv_layers"),
    (PER_LAYER, "embedding_length_per_layer_input"),
    (HEAD_DIM, "attention.key_length_swa"),
    (HEAD_DIM, "attention.value_length_swa"),
    (GLOBAL_HEAD_DIM, "attention.key_length"),
    (GLOBAL_HEAD_DIM, "attention.value_length"),
    ("top_k_experts", "expert_used_count"),
];

/// A text whose fields are being read.
struct Gemma4Draft<'a> {
    fields: &'a Fields<'a>,
    keys: GgufKeys,
    /// Whether each layer has a window.
    windowed: Vec<bool>,
    /// Elements of a head, and key and value heads, of a layer without a window.
    global: (u32, u32),
}

/// Reads the relevant fields of `config.json`.
pub(super) fn describe(fields: &Fields<'_>) -> Result<ModelDescription, SafetensorsError> {
    const ARCHITECTURE: Architecture = Architecture::Gemma4;
    let mut keys = GgufKeys {
        name: ARCHITECTURE.name(),
        out: GgufWriter::new(),
    };
    keys.out.str("general.architecture", ARCHITECTURE.name());
    keys.out.str("general.type", "model");
    refuse(fields)?;
    for (field, key) in NUMBERS {
        keys.number(key, fields.need_number(field)?);
    }
    let mut draft = Gemma4Draft {
        fields,
        keys,
        windowed: windowed(fields)?,
        global: (0, 0),
    };
    draft.heads()?;
    draft.feed_forward()?;
    draft.per_layer()?;
    draft.experts()?;
    let epsilon = fields.need_float("rms_norm_eps")?;
    draft
        .keys
        .float("attention.layer_norm_rms_epsilon", epsilon);
    if let Some(cap) = fields.float("final_logit_softcapping")? {
        draft.keys.float("final_logit_softcapping", cap);
    }
    let factors = draft.rope()?;
    Ok(ModelDescription {
        tied: fields.flag("tie_word_embeddings")?.unwrap_or(true),
        vocab: fields.need_number("vocab_size")?,
        made: vec![("rope_freqs.weight", factors)],
        ..ModelDescription::new(Family::Decoder(ARCHITECTURE), draft.keys.out)
    })
}

/// The source field of a key.
pub(super) fn field_of(key: &str) -> Option<&'static str> {
    let (_, key) = key.split_once('.')?;
    let mut all = KEYS.iter();
    all.find(|(_, known)| *known == key).map(|row| row.0)
}

/// Rejects fields that request an unsupported computation.
fn refuse(fields: &Fields<'_>) -> Result<(), SafetensorsError> {
    const ACTIVATION: &str = "hidden_activation";
    const GELU: &str = "gelu_pytorch_tanh";
    hyperparameters::refuse_quantized(fields)?;
    if let Some(other) = fields.text(ACTIVATION)?.filter(|found| *found != GELU) {
        return Err(fields.wrong(ACTIVATION, format!("is {other:.64}, must be {GELU}")));
    }
    if fields.flag("attention_bias")? == Some(true) {
        return Err(fields.wrong("attention_bias", "is true, which is not supported"));
    }
    // Rows of an image see each other in models without embeddings of each layer, as no key of a GGUF says.
    let by_layer = fields.number(PER_LAYER)?.unwrap_or(0) > 0;
    let wanted = if by_layer { None } else { Some("vision") };
    let found = fields.text(BOTH_WAYS)?;
    if found == wanted {
        return Ok(());
    }
    let why = format!(
        "is {:.64}, must be {} in a model with `{PER_LAYER}` {}",
        found.unwrap_or("null"),
        wanted.unwrap_or("null"),
        if by_layer { "above 0" } else { "0" },
    );
    Err(fields.wrong(BOTH_WAYS, why))
}

/// Whether each layer has a window.
fn windowed(fields: &Fields<'_>) -> Result<Vec<bool>, SafetensorsError> {
    const TYPES: &str = "layer_types";
    let layers = fields.need_number(LAYERS)? as usize;
    if !(1..=limits::LAYERS).contains(&layers) {
        let why = format!("is {layers}, must be 1 to {}", limits::LAYERS);
        return Err(fields.wrong(LAYERS, why));
    }
    let mut windowed: Vec<bool> = match fields.texts(TYPES)? {
        None => (1..=layers)
            .map(|layer| !layer.is_multiple_of(PERIOD))
            .collect(),
        Some(types) => types
            .iter()
            .map(|kind| match *kind {
                "sliding_attention" => Ok(true),
                "full_attention" => Ok(false),
                other => {
                    let why =
                        format!("has {other:.64}, must have sliding_attention or full_attention");
                    Err(fields.wrong(TYPES, why))
                }
            })
            .collect::<Result<_, _>>()?,
    };
    if windowed.len() != layers {
        let why = format!(
            "has {} layers, must have {layers}, as `{LAYERS}`",
            windowed.len()
        );
        return Err(fields.wrong(TYPES, why));
    }
    windowed[layers - 1] = false;
    Ok(windowed)
}

impl Gemma4Draft<'_> {
    /// Heads of layers with and without a window.
    fn heads(&mut self) -> Result<(), SafetensorsError> {
        let fields = self.fields;
        let (dim, kv_heads) = (fields.need_number(HEAD_DIM)?, fields.need_number(KV_HEADS)?);
        let same_values = fields.flag("attention_k_eq_v")?.unwrap_or(false);
        let named = fields.number(GLOBAL_KV_HEADS)?.filter(|_| same_values);
        self.global = (
            fields.number(GLOBAL_HEAD_DIM)?.unwrap_or(GLOBAL_DIM),
            named.unwrap_or(kv_heads),
        );
        if let Some(each) = fields.object(EACH)? {
            self.global = self.each_layer(&each, (dim, kv_heads))?;
        }
        let (global_dim, global_kv_heads) = self.global;
        for part in ["key", "value"] {
            self.keys
                .number(&format!("attention.{part}_length"), global_dim);
            self.keys
                .number(&format!("attention.{part}_length_swa"), dim);
        }
        let windowed = self.windowed.iter();
        let each: Vec<i32> = windowed
            .clone()
            .map(|windowed| if *windowed { kv_heads } else { global_kv_heads })
            .map(|heads| i32::try_from(heads).unwrap_or(i32::MAX))
            .collect();
        self.keys.numbers("attention.head_count_kv", &each);
        let flags: Vec<i32> = windowed.map(|windowed| i32::from(*windowed)).collect();
        self.keys
            .numbers("attention.sliding_window_pattern", &flags);
        let shared = fields.number(SHARED)?.unwrap_or(0);
        self.keys.number("attention.shared_kv_layers", shared);
        Ok(())
    }

    /// Elements of a head, and key and value heads, of all layers without a window, from an object that names layers with other
    /// numbers than `usual`.
    fn each_layer(
        &self,
        each: &Fields<'_>,
        usual: (u32, u32),
    ) -> Result<(u32, u32), SafetensorsError> {
        let mut global = None;
        for (layer, windowed) in self.windowed.iter().enumerate() {
            let name = layer.to_string();
            let mut found = usual;
            if let Some(layer) = each.object(&name)? {
                let known = [HEAD_DIM, KV_HEADS];
                if let Some((field, _)) = layer
                    .entries()
                    .find(|(field, _)| !known.contains(&field.as_str()))
                {
                    return Err(layer.wrong(field, "is not supported in a single layer"));
                }
                found.0 = layer.number(HEAD_DIM)?.unwrap_or(usual.0);
                found.1 = layer.number(KV_HEADS)?.unwrap_or(usual.1);
            }
            let wanted = if *windowed {
                usual
            } else {
                *global.get_or_insert(found)
            };
            if found != wanted {
                let why = format!(
                    "has `{HEAD_DIM}` {} and `{KV_HEADS}` {}, must have {} and {}, as all layers of the kind",
                    found.0, found.1, wanted.0, wanted.1
                );
                return Err(each.wrong(&name, why));
            }
        }
        Ok(global.unwrap_or(usual))
    }

    /// Widths of the feed-forward parts: twice as wide, in some models, where keys and values are those of another layer.
    fn feed_forward(&mut self) -> Result<(), SafetensorsError> {
        const KEY: &str = "feed_forward_length";
        const FIELD: &str = "intermediate_size";
        let hidden = self.fields.need_number(FIELD)?;
        if !self.fields.flag("use_double_wide_mlp")?.unwrap_or(false) {
            self.keys.number(KEY, hidden);
            return Ok(());
        }
        let width = i32::try_from(hidden)
            .ok()
            .filter(|hidden| *hidden as usize <= limits::HIDDEN);
        let Some(width) = width else {
            let why = format!("is {hidden}, must be at most {}", limits::HIDDEN);
            return Err(self.fields.wrong(FIELD, why));
        };
        let shared = self.fields.number(SHARED)?.unwrap_or(0) as usize;
        let layers = self.windowed.len();
        let own = layers.saturating_sub(shared);
        let each: Vec<i32> = (0..layers)
            .map(|layer| if layer < own { width } else { 2 * width })
            .collect();
        self.keys.numbers(KEY, &each);
        Ok(())
    }

    /// Embeddings of each layer.
    fn per_layer(&mut self) -> Result<(), SafetensorsError> {
        const VOCAB: &str = "vocab_size_per_layer_input";
        let width = self.fields.number(PER_LAYER)?.unwrap_or(0);
        self.keys.number("embedding_length_per_layer_input", width);
        let vocab = self.fields.need_number("vocab_size")?;
        match self
            .fields
            .number(VOCAB)?
            .filter(|found| width > 0 && *found != vocab)
        {
            None => Ok(()),
            Some(found) => {
                let why = format!("is {found}, must be {vocab}, as `vocab_size`");
                Err(self.fields.wrong(VOCAB, why))
            }
        }
    }

    fn experts(&mut self) -> Result<(), SafetensorsError> {
        if !self.fields.flag("enable_moe_block")?.unwrap_or(false) {
            return Ok(());
        }
        for (field, key) in [
            ("num_experts", "expert_count"),
            ("top_k_experts", "expert_used_count"),
            ("moe_intermediate_size", "expert_feed_forward_length"),
        ] {
            self.keys.number(key, self.fields.need_number(field)?);
        }
        Ok(())
    }

    /// Writes the rope's keys; returns the divisors of the frequencies of layers without a window.
    fn rope(&mut self) -> Result<Vec<f32>, SafetensorsError> {
        const PART: &str = "partial_rotary_factor";
        let both = self.fields.object("rope_parameters")?;
        let part_of = |name| match &both {
            Some(both) => both.object(name),
            None => Ok(None),
        };
        let kinds = [part_of("full_attention")?, part_of("sliding_attention")?];
        let suffixes = ["", "_swa"];
        let usual = ["proportional", "default"];
        for (at, kind) in kinds.iter().enumerate() {
            let mut theta = THETAS[at];
            if let Some(kind) = kind {
                theta = kind.float("rope_theta")?.unwrap_or(theta);
                let found = kind.text("rope_type")?.unwrap_or("default");
                if ![usual[at], "default"].contains(&found)
                    || kind.float("factor")?.is_some_and(|factor| factor != 1.0)
                {
                    let why = format!("is {found:.64}, must be {} without a factor", usual[at]);
                    return Err(kind.wrong("rope_type", why));
                }
            }
            self.keys
                .float(&format!("rope.freq_base{}", suffixes[at]), theta);
        }
        let dim = self.global.0;
        self.keys.number("rope.dimension_count", dim);
        self.keys.number(
            "rope.dimension_count_swa",
            self.fields.need_number(HEAD_DIM)?,
        );
        let part = match &kinds[0] {
            None => TURNING,
            Some(kind) if kind.text("rope_type")? == Some("proportional") => {
                kind.float(PART)?.unwrap_or(1.0)
            }
            Some(_) => 1.0,
        };
        if !(0.0..=1.0).contains(&part) {
            let why = format!("is {part}, must be 0 to 1");
            return Err(self
                .fields
                .wrong(&format!("rope_parameters.full_attention.{PART}"), why));
        }
        // The head size is checked with the keys.
        let pairs = (dim as usize / 2).min(limits::HEAD_DIM);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a small number, cut as the implementation cuts it"
        )]
        let turning = (part * f64::from(dim) / 2.0) as usize;
        Ok((0..pairs)
            .map(|pair| if pair < turning { 1.0 } else { STANDING })
            .collect())
    }
}
