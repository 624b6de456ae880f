//! Errors of a file's metadata.

use super::Architecture;
use super::encoder_kind::EncoderKind;
use super::nearest::nearest;

/// Why metadata does not describe a supported decoder. Each error names the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A required key is missing.
    #[error("metadata key `{key}` is missing")]
    Missing {
        /// Full name of the key.
        key: String,
    },
    /// The value has the wrong type.
    #[error("metadata key `{key}` must be {wanted}")]
    Type {
        /// Full name of the key.
        key: String,
        /// Expected type.
        wanted: &'static str,
    },
    /// The value is out of bounds.
    #[error("metadata key `{key}` is {found}, must be {bound}")]
    Range {
        /// Full name of the key.
        key: String,
        /// The value.
        found: String,
        /// Accepted values.
        bound: String,
    },
    /// `general.architecture` names an unsupported family.
    #[error("{}", unsupported(found))]
    Architecture {
        /// The value.
        found: String,
    },
    /// The family is supported, but not this feature of the file.
    #[error("metadata key `{key}` asks for {what}, which is not supported")]
    Unsupported {
        /// Full name of the key.
        key: String,
        /// The feature.
        what: &'static str,
    },
}

impl ConfigError {
    /// This error with the key renamed.
    pub(crate) fn renamed(mut self, name: impl Fn(&str) -> String) -> Self {
        match &mut self {
            Self::Missing { key }
            | Self::Type { key, .. }
            | Self::Range { key, .. }
            | Self::Unsupported { key, .. } => *key = name(key),
            Self::Architecture { .. } => {}
        }
        self
    }
}

/// That an architecture is not supported, with the nearest names and all that are.
fn unsupported(found: &str) -> String {
    let decoders = Architecture::ALL.iter().map(|family| family.name());
    let encoders = EncoderKind::ALL.iter().map(|kind| kind.name());
    let known: Vec<&str> = decoders.chain(encoders).collect();
    let near = match nearest(found, &known).join(", ") {
        near if near.is_empty() => near,
        near => format!("; nearest: {near}"),
    };
    let all = known.join(", ");
    format!("architecture `{found}` is not supported{near}; supported are {all}")
}
