//! Classes of models in transformers: the family of each, its tensors' names, and the fields of its keys.

use super::SafetensorsError;
use super::described::ModelDescription;
use super::encoder_classes::{self, ENCODER_CLASSES};
use super::family::Family;
use super::fields::Fields;
use super::names::{self, Named};
use super::{
    encoder_fields, gemma4_fields, hyperparameters, mamba_fields, nested, recurrent_fields,
    recurrent_names, vision_classes, vision_fields,
};
use crate::Architecture;

/// Model classes of transformers that these decoders implement.
const CLASSES: &[(&str, Architecture)] = &[
    ("LlamaForCausalLM", Architecture::Llama),
    ("MistralForCausalLM", Architecture::Llama),
    ("Qwen2ForCausalLM", Architecture::Qwen2),
    ("Qwen3ForCausalLM", Architecture::Qwen3),
    ("Qwen3Model", Architecture::Qwen3),
    ("Gemma2ForCausalLM", Architecture::Gemma2),
    ("Gemma3ForCausalLM", Architecture::Gemma3),
    ("Gemma3TextModel", Architecture::GemmaEmbedding),
    ("Phi3ForCausalLM", Architecture::Phi3),
    ("GemmaForCausalLM", Architecture::Gemma),
    ("GraniteForCausalLM", Architecture::Granite),
    ("SmolLM3ForCausalLM", Architecture::SmolLm3),
    ("Olmo2ForCausalLM", Architecture::Olmo2),
    ("Ernie4_5ForCausalLM", Architecture::Ernie45),
    ("MixtralForCausalLM", Architecture::Llama),
    ("Qwen3MoeForCausalLM", Architecture::Qwen3Moe),
    ("OlmoeForCausalLM", Architecture::Olmoe),
    ("GraniteMoeForCausalLM", Architecture::GraniteMoe),
    ("GptOssForCausalLM", Architecture::GptOss),
    ("Lfm2ForCausalLM", Architecture::Lfm2),
    ("Qwen3NextForCausalLM", Architecture::Qwen3Next),
    ("Qwen3_5ForCausalLM", Architecture::Qwen35),
    ("Qwen3_5ForConditionalGeneration", Architecture::Qwen35),
    ("Qwen3_5MoeForCausalLM", Architecture::Qwen35Moe),
    (
        "Qwen3_5MoeForConditionalGeneration",
        Architecture::Qwen35Moe,
    ),
    ("MiniCPMV4_6ForConditionalGeneration", Architecture::Qwen35),
    ("MiniCPMOcrForConditionalGeneration", Architecture::Qwen35),
    (mamba_fields::GRANITE_HYBRID, Architecture::GraniteHybrid),
    ("FalconH1ForCausalLM", Architecture::FalconH1),
    ("Mamba2ForCausalLM", Architecture::Mamba2),
    ("NemotronHForCausalLM", Architecture::NemotronH),
];

impl Family {
    /// The family of the class that `config.json` names.
    pub(super) fn of(fields: &Fields<'_>) -> Result<Self, SafetensorsError> {
        const FIELD: &str = "architectures";
        let named = fields.texts(FIELD)?.unwrap_or_default();
        let Some(first) = named.first() else {
            return Err(fields.missing(FIELD));
        };
        let has_experts = encoder_fields::has_experts(fields)?;
        if let Some(encoder) = encoder_classes::find(first, has_experts) {
            return Ok(Self::Encoder(encoder));
        }
        if *first == mamba_fields::GRANITE_HYBRID {
            return Ok(Self::Decoder(mamba_fields::granite(fields)?));
        }
        if let Some(architecture) = nested::architecture(first, fields)? {
            return Ok(Self::Decoder(architecture));
        }
        let known = CLASSES.iter().find(|(class, _)| class == first);
        let known = known.map(|(_, architecture)| Self::Decoder(*architecture));
        known.ok_or_else(|| {
            if vision_classes::has_tower(first) {
                return nested::unknown_text(fields);
            }
            if let Some(why) = vision_classes::refusal(first) {
                return fields.wrong(FIELD, why);
            }
            let encoders = ENCODER_CLASSES.iter().map(|class| class.name);
            let all = CLASSES.iter().map(|(class, _)| *class).chain(encoders);
            let all: Vec<&str> = all.collect();
            let first: String = first.chars().take(64).collect();
            let all = all.join(", ");
            fields.wrong(
                FIELD,
                format!("is {first}, which is not supported; supported are {all}"),
            )
        })
    }

    /// GGUF's name for a stored tensor.
    pub(super) fn named(self, described: &ModelDescription, stored: &str) -> Named {
        let (tied, saved) = (described.tied, &described.recurrent);
        let plain = if described.is_nested {
            nested::text_name(stored)
        } else {
            Some(stored.into())
        };
        let Some(stored) = plain.as_deref() else {
            return Named::Nothing;
        };
        match self {
            Self::Decoder(architecture) if uses_recurrent_names(architecture, saved.fused_feed) => {
                recurrent_names::named(architecture, saved, tied, stored)
            }
            Self::Decoder(architecture) => names::named(architecture, tied, stored),
            Self::Encoder(class) => class.named(stored),
            Self::Tower(class) => class.named(&described.deepstack, stored),
        }
    }

    /// The field of `config.json` that a key comes from.
    pub(super) fn field_of(self, key: &str) -> Option<&'static str> {
        match self {
            Self::Decoder(Architecture::Gemma4) => {
                gemma4_fields::field_of(key).or_else(|| hyperparameters::field_of(key))
            }
            Self::Decoder(architecture) => recurrent_fields::field_of(architecture, key)
                .or_else(|| hyperparameters::field_of(key)),
            Self::Encoder(class) => encoder_fields::field_of(class.kind, key),
            Self::Tower(class) => vision_fields::field_of(class, key),
        }
    }

    /// The stored name of GGUF's tensor; `None` for derived tensors. `fused_feed`: gate and up projection are one.
    pub(super) fn stored(self, name: &str, fused_feed: bool) -> Option<String> {
        match self {
            Self::Decoder(architecture) if uses_recurrent_names(architecture, fused_feed) => {
                recurrent_names::stored(architecture, name)
            }
            Self::Decoder(architecture) => names::stored(architecture, name),
            Self::Encoder(class) => class.stored(name),
            Self::Tower(class) => class.stored(name),
        }
    }
}

/// Whether the names are those of [`recurrent_names`]. `fused_feed`: gate and up projection are one tensor.
fn uses_recurrent_names(architecture: Architecture, fused_feed: bool) -> bool {
    let has_layers = recurrent_fields::has_scan(architecture);
    has_layers || fused_feed
}

/// Whether adapters in safetensors change models of this architecture. Those of recurrent families do not: their
/// weights in GGUF have another order, or other factors.
pub(super) fn takes_adapters(architecture: Architecture) -> bool {
    let is_known = CLASSES.iter().any(|(_, known)| *known == architecture);
    is_known && !recurrent_fields::has_scan(architecture)
}
