//! Families of models whose safetensors are read: decoders, and encoders.

use super::SafetensorsError;
use super::encoder_classes::{self, ENCODER_CLASSES, EncoderClass};
use super::fields::Fields;
use super::names::{self, Named};
use super::{encoder_fields, hyperparameters};
use crate::Architecture;
use crate::config::traits::StateHeadRule;

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
];

/// The kind of model in a folder.
#[derive(Clone, Copy, Debug)]
pub(super) enum Family {
    Decoder(Architecture),
    Encoder(&'static EncoderClass),
}

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
        let known = CLASSES.iter().find(|(class, _)| class == first);
        let known = known.map(|(_, architecture)| Self::Decoder(*architecture));
        known.ok_or_else(|| {
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

    /// The architecture of a decoder.
    pub(super) fn decoder(self) -> Option<Architecture> {
        match self {
            Self::Decoder(architecture) => Some(architecture),
            Self::Encoder(_) => None,
        }
    }

    /// Whether dense projections may follow the pooling.
    pub(super) fn takes_dense(self) -> bool {
        let architecture = self.decoder();
        architecture.is_some_and(|one| one.traits().state_head == StateHeadRule::Dense)
    }

    /// GGUF's name for a stored tensor. `tied`: the embedding is also the projection.
    pub(super) fn named(self, tied: bool, stored: &str) -> Named {
        match self {
            Self::Decoder(architecture) => names::named(architecture, tied, stored),
            Self::Encoder(class) => class.named(stored),
        }
    }

    /// The field of `config.json` that a key comes from.
    pub(super) fn field_of(self, key: &str) -> Option<&'static str> {
        match self {
            Self::Decoder(_) => hyperparameters::field_of(key),
            Self::Encoder(class) => encoder_fields::field_of(class.kind, key),
        }
    }

    /// The stored name of GGUF's tensor; `None` for derived tensors.
    pub(super) fn stored(self, name: &str) -> Option<String> {
        match self {
            Self::Decoder(architecture) => names::stored(architecture, name),
            Self::Encoder(class) => class.stored(name),
        }
    }
}

/// Whether models of this architecture load from safetensors.
pub(super) fn is_loaded(architecture: Architecture) -> bool {
    CLASSES.iter().any(|(_, known)| *known == architecture)
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decoder(architecture) => architecture.fmt(f),
            Self::Encoder(class) => f.write_str(class.name),
        }
    }
}
