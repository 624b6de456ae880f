//! What can be wrong with a file's metadata.

use super::Architecture;

/// Why metadata does not describe a decoder that this crate runs. Each names the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The key must be there.
    Missing {
        /// Full name of the key.
        key: String,
    },
    /// The value has another type.
    Type {
        /// Full name of the key.
        key: String,
        /// The type it should have.
        wanted: &'static str,
    },
    /// The value lies outside its bounds.
    Range {
        /// Full name of the key.
        key: String,
        /// What was found.
        found: String,
        /// What would be accepted.
        bound: String,
    },
    /// `general.architecture` names a family that this crate does not run.
    Architecture {
        /// What was found.
        found: String,
    },
    /// The family is known, but the file uses a part of it that this crate does not run.
    Unsupported {
        /// Full name of the key.
        key: String,
        /// What it asks for.
        what: &'static str,
    },
}

impl ConfigError {
    /// The same about a key of another name.
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
                write!(f, "architecture `{found}` is not supported; supported are")?;
                Architecture::ALL
                    .iter()
                    .enumerate()
                    .try_for_each(|(i, a)| write!(f, "{}{a}", if i == 0 { " " } else { ", " }))
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
