//! Errors of a file's metadata.

use super::Architecture;
use super::encoder_kind::EncoderKind;

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
    let decoders = Architecture::all().map(Architecture::name);
    let encoders = EncoderKind::ALL.iter().map(|kind| kind.name());
    let known: Vec<&str> = decoders.chain(encoders).collect();
    let near = match nearest(found, &known).join(", ") {
        near if near.is_empty() => near,
        near => format!("; nearest: {near}"),
    };
    let all = known.join(", ");
    format!("architecture `{found}` is not supported{near}; supported are {all}")
}

/// The most names that are shown.
const SHOWN: usize = 3;

/// The known names that differ from `name` in at most half of its letters, nearest first.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let most = name.chars().count() / 2;
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|&other| (edits(&name, other), other))
        .filter(|(edits, _)| *edits <= most)
        .collect();
    near.sort_by_key(|(edits, _)| *edits);
    near.truncate(SHOWN);
    near.into_iter().map(|(_, other)| other).collect()
}

/// Letters to insert, delete or replace to turn one name into the other (Levenshtein's distance).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_in_order() {
        let known = ["llama", "qwen2", "qwen3", "gemma3", "bert"];
        for (name, near) in [
            ("qwen35", &["qwen3", "qwen2"][..]),
            ("gemma4", &["gemma3"]),
            ("llama4", &["llama"]),
            ("LLAMA", &["llama"]),
            ("rwkv7", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest(name, &known), near, "{name}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, count) in [("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)] {
            assert_eq!(edits(a, b), count, "{a} {b}");
            assert_eq!(edits(b, a), count, "{b} {a}");
        }
    }
}
