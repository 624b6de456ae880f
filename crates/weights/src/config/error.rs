//! Errors of a file's metadata.

use super::Architecture;
use super::encoder_kind::EncoderKind;
use super::nearest::nearest;

/// Why metadata does not describe a supported decoder. Each error names the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A required key is missing.
    Missing {
        /// Full name of the key.
        key: String,
    },
    /// The value has the wrong type.
    Type {
        /// Full name of the key.
        key: String,
        /// Expected type.
        wanted: &'static str,
    },
    /// The value is out of bounds.
    Range {
        /// Full name of the key.
        key: String,
        /// The value.
        found: String,
        /// Accepted values.
        bound: String,
    },
    /// `general.architecture` names an unsupported family.
    Architecture {
        /// The value.
        found: String,
    },
    /// The family is supported, but not this feature of the file.
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

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { key } => write!(f, "metadata key `{key}` is missing"),
            Self::Type { key, wanted } => write!(f, "metadata key `{key}` must be {wanted}"),
            Self::Range { key, found, bound } => {
                write!(f, "metadata key `{key}` is {found}, must be {bound}")
            }
            Self::Architecture { found } => {
                let decoders = Architecture::ALL.iter().map(|family| family.name());
                let encoders = EncoderKind::ALL.iter().map(|kind| kind.name());
                let known: Vec<&str> = decoders.chain(encoders).collect();
                write!(f, "architecture `{found}` is not supported")?;
                let near = nearest(found, &known).join(", ");
                if !near.is_empty() {
                    write!(f, "; nearest: {near}")?;
                }
                write!(f, "; supported are {}", known.join(", "))
            }
            Self::Unsupported { key, what } => {
                write!(
                    f,
                    "metadata key `{key}` asks for {what}, which is not supported"
                )
            }
        }
    }
}

impl std::error::Error for ConfigError {}
