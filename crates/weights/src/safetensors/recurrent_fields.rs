//! GGUF keys of decoders with recurrent layers, derived from `config.json`: what all families share.

use super::SafetensorsError;
use super::described::ModelDescription;
use super::family::Family;
use super::fields::Fields;
use super::gguf_keys::GgufKeys;
use super::hyperparameters::{self, head_dim};
use super::modules::{Modules, POOLING_KEY};
use super::recurrent::RecurrentSaved;
use super::{delta_fields, falcon_fields, mamba_fields};
use crate::Architecture;
use crate::config::recurrent_rule::RecurrentRule;
use crate::gguf::GgufWriter;

/// A model with recurrent layers, whose `config.json` is being read.
pub(super) struct ModelDraft<'a> {
    pub(super) architecture: Architecture,
    pub(super) fields: &'a Fields<'a>,
    pub(super) keys: GgufKeys,
    pub(super) saved: RecurrentSaved,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) made: Vec<(&'static str, Vec<f32>)>,
}

/// Sizes of the scan of a recurrent layer.
pub(super) struct ScanSizes {
    pub(super) taps: u32,
    /// Elements of a head of queries and keys.
    pub(super) state: u32,
    /// Elements of all heads of values.
    pub(super) inner: u32,
    pub(super) groups: u32,
    pub(super) heads: u32,
}

/// Whether recurrent layers of the architecture have a scan.
pub(super) fn has_scan(architecture: Architecture) -> bool {
    use RecurrentRule::{Delta, Mamba};
    let rule = architecture.traits().recurrent;
    matches!(rule, Some(Delta { .. } | Mamba(_)))
}

/// Whether [`describe`] reads the fields of such a model: those of a class with recurrent layers, though the model may
/// have none.
pub(super) fn reads(
    architecture: Architecture,
    fields: &Fields<'_>,
) -> Result<bool, SafetensorsError> {
    Ok(has_scan(architecture) || mamba_fields::is_granite_hybrid(fields)?)
}

/// Reads the relevant fields of a decoder's `config.json`.
pub(super) fn describe(
    architecture: Architecture,
    root: &Fields<'_>,
    modules: &Modules,
) -> Result<ModelDescription, SafetensorsError> {
    use Architecture::{FalconH1, Mamba2, NemotronH, Qwen3Next, Qwen35, Qwen35Moe};
    const TIED: &str = "tie_word_embeddings";
    // In models for images, too, the fields of the text model are within.
    let inner = root.object("text_config")?;
    let fields = inner.as_ref().unwrap_or(root);
    hyperparameters::refuse_quantized(root)?;
    let mut draft = ModelDraft::new(architecture, fields);
    match architecture {
        Qwen35 | Qwen35Moe | Qwen3Next => delta_fields::read(&mut draft)?,
        FalconH1 => falcon_fields::read(&mut draft)?,
        Mamba2 => mamba_fields::read_mamba2(&mut draft)?,
        NemotronH => mamba_fields::read_nemotron(&mut draft)?,
        _ => mamba_fields::read_granite(&mut draft)?,
    }
    if let Some(pooling) = modules.pooling {
        draft.keys.number(POOLING_KEY, pooling);
    }
    let tied = match root.flag(TIED)? {
        Some(tied) => Some(tied),
        None => fields.flag(TIED)?,
    };
    Ok(ModelDescription {
        tied: tied.unwrap_or(false),
        is_embedding: modules.pooling.is_some(),
        vocab: fields.need_number("vocab_size")?,
        heads: draft.heads,
        kv_heads: draft.kv_heads,
        recurrent: draft.saved,
        made: draft.made,
        ..ModelDescription::new(Family::Decoder(architecture), draft.keys.out)
    })
}

impl<'a> ModelDraft<'a> {
    fn new(architecture: Architecture, fields: &'a Fields<'a>) -> Self {
        let mut keys = GgufKeys {
            name: architecture.name(),
            out: GgufWriter::new(),
        };
        keys.out.str("general.architecture", architecture.name());
        keys.out.str("general.type", "model");
        Self {
            architecture,
            fields,
            keys,
            saved: RecurrentSaved::default(),
            heads: 0,
            kv_heads: 0,
            made: Vec::new(),
        }
    }

    /// Writes integers that must be there.
    pub(super) fn numbers(&mut self, rows: &[(&str, &str)]) -> Result<(), SafetensorsError> {
        for (field, key) in rows {
            self.keys.number(key, self.fields.need_number(field)?);
        }
        Ok(())
    }

    /// Writes the query heads and the size of heads, and notes the numbers of heads. Returns the size.
    pub(super) fn heads(&mut self) -> Result<u32, SafetensorsError> {
        self.heads = self.fields.need_number("num_attention_heads")?;
        let kv_heads = self.fields.number("num_key_value_heads")?;
        self.kv_heads = kv_heads.unwrap_or(self.heads);
        self.keys.number("attention.head_count", self.heads);
        // The name in old files of Nemotron H.
        let old = self.fields.number("attention_head_dim")?;
        let head_dim = match old.filter(|_| self.fields.get("head_dim").is_none()) {
            Some(old) => old,
            None => head_dim(self.fields, self.architecture, self.heads)?,
        };
        self.keys.number("attention.key_length", head_dim);
        self.keys.number("attention.value_length", head_dim);
        Ok(head_dim)
    }

    /// Writes the epsilon of norms, which is `default` where the field is not there.
    pub(super) fn epsilon(&mut self, field: &str, default: f64) -> Result<(), SafetensorsError> {
        let epsilon = self.fields.float(field)?.unwrap_or(default);
        self.keys.float("attention.layer_norm_rms_epsilon", epsilon);
        Ok(())
    }

    pub(super) fn scan(&mut self, sizes: &ScanSizes) {
        for (key, value) in [
            ("ssm.conv_kernel", sizes.taps),
            ("ssm.state_size", sizes.state),
            ("ssm.inner_size", sizes.inner),
            ("ssm.group_count", sizes.groups),
            ("ssm.time_step_rank", sizes.heads),
        ] {
            self.keys.number(key, value);
        }
    }

    /// Writes the key and value heads of each layer: 0 where a layer has no attention.
    pub(super) fn kv_heads_of(&mut self, attends: &[bool]) {
        let heads = i32::try_from(self.kv_heads).unwrap_or(i32::MAX);
        let each: Vec<i32> = attends
            .iter()
            .map(|attends| if *attends { heads } else { 0 })
            .collect();
        let key = self.keys.full("attention.head_count_kv");
        self.keys.out.i32s(&key, &each);
    }

    /// Rejects a field that asks for biases, or something else that is not computed.
    pub(super) fn refuse_true(&self, fields: &[&str]) -> Result<(), SafetensorsError> {
        for field in fields {
            if self.fields.flag(field)? == Some(true) {
                let why = "is true, which is not supported";
                return Err(self.fields.wrong(field, why));
            }
        }
        Ok(())
    }
}

/// The source field of a key that not all decoders have.
pub(super) fn field_of(architecture: Architecture, key: &str) -> Option<&'static str> {
    use Architecture::{FalconH1, GraniteHybrid, Mamba2, NemotronH, Qwen3Next, Qwen35, Qwen35Moe};
    let rows = match architecture {
        Qwen35 | Qwen35Moe | Qwen3Next => delta_fields::KEYS,
        FalconH1 => falcon_fields::KEYS,
        GraniteHybrid => mamba_fields::KEYS_GRANITE,
        Mamba2 => mamba_fields::KEYS_MAMBA2,
        NemotronH => mamba_fields::KEYS_NEMOTRON,
        _ => return None,
    };
    let (_, key) = key.split_once('.')?;
    let found = rows.iter().find(|(_, known)| *known == key);
    found.map(|(field, _)| *field)
}
