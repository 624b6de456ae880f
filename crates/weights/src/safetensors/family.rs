//! Families of models whose safetensors are read: decoders, and encoders.

use super::encoder_classes::EncoderClass;
use super::tower_class::TowerClass;
use crate::Architecture;
use crate::config::traits::StateHeadRule;

/// The kind of model in a folder.
#[derive(Clone, Copy, Debug)]
pub(super) enum Family {
    Decoder(Architecture),
    Encoder(&'static EncoderClass),
    Tower(&'static TowerClass),
}

impl Family {
    /// The architecture of a decoder.
    pub(super) fn decoder(self) -> Option<Architecture> {
        match self {
            Self::Decoder(architecture) => Some(architecture),
            Self::Encoder(_) | Self::Tower(_) => None,
        }
    }

    /// Whether dense projections may follow the pooling.
    pub(super) fn takes_dense(self) -> bool {
        let architecture = self.decoder();
        architecture.is_some_and(|one| one.traits().state_head == StateHeadRule::Dense)
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decoder(architecture) => architecture.fmt(f),
            Self::Encoder(class) => f.write_str(class.name),
            Self::Tower(class) => write!(f, "a tower {}", class.projector),
        }
    }
}

/// Whether an architecture is a decoder of Gemma 1 to 3.
pub(super) fn is_gemma(architecture: Architecture) -> bool {
    matches!(
        architecture,
        Architecture::Gemma
            | Architecture::Gemma2
            | Architecture::Gemma3
            | Architecture::GemmaEmbedding
    )
}
