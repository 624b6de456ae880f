//! Identity of a model by content: which streams of an earlier process may continue with the loaded model.

use serde::{Deserialize, Serialize};

/// Digests of what decides a model's tokens. The digests are hexadecimal BLAKE3; all parts are empty for a model whose
/// files are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelIdentity {
    /// Hyperparameters, and names, shapes, types and sampled data of all tensors.
    pub weights: String,
    /// Vocabulary, merges, token types, special tokens and pre-tokenizer.
    pub tokenizer: String,
    /// Chat template and answer format.
    pub template: String,
    /// Readable list of the settings that decide the bits of a result; empty where that is not known.
    pub arithmetic: String,
}

/// Last word of an arithmetic whose results depend on how many rows a step has (decision 0008).
const TILES: &str = "tiles";

impl ModelIdentity {
    /// Whether two computations give equal bits: both arithmetics are known and the same, and rows do not know their batch.
    pub fn computes_as(&self, other: &Self) -> bool {
        let is_known = !self.arithmetic.is_empty() && self.arithmetic == other.arithmetic;
        is_known && !self.arithmetic.ends_with(TILES)
    }
}

/// Result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelMatch {
    /// The stream continues.
    Same {
        /// The settings that decide the bits of a result are other ones.
        is_recomputed: bool,
    },
    /// Other weights: the recorded tokens are readable, and no further token can be computed.
    Readable,
    /// Another vocabulary or template.
    Other,
}

impl ModelMatch {
    /// Compares the model at the opening with the loaded one.
    pub(crate) fn of(recorded: &ModelIdentity, loaded: &ModelIdentity) -> Self {
        let reads = recorded.tokenizer == loaded.tokenizer && recorded.template == loaded.template;
        match (reads, recorded.weights == loaded.weights) {
            (true, true) => Self::Same {
                is_recomputed: recorded.arithmetic != loaded.arithmetic
                    && !loaded.arithmetic.is_empty(),
            },
            (true, false) => Self::Readable,
            (false, _) => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_equal_with_one_known_arithmetic_without_tiles() {
        let rows = [
            ("v1, vectors", "v1, vectors", true),
            ("v1, vectors", "v2, vectors", false),
            ("v1, tiles", "v1, tiles", false),
            ("", "", false),
            ("v1, vectors", "", false),
        ];
        for (one, other, is_equal) in rows {
            let identity = |arithmetic: &str| ModelIdentity {
                arithmetic: arithmetic.to_owned(),
                ..ModelIdentity::default()
            };
            let (one, other) = (identity(one), identity(other));
            assert_eq!(one.computes_as(&other), is_equal, "{one:?} {other:?}");
        }
    }
}

#[cfg(test)]
mod model_match_tests {
    use super::*;

    #[test]
    fn content_decides_whether_a_stream_continues() {
        let identity = |weights: &str, tokenizer: &str, template: &str, arithmetic: &str| {
            let [weights, tokenizer, template, arithmetic] =
                [weights, tokenizer, template, arithmetic].map(str::to_owned);
            ModelIdentity {
                weights,
                tokenizer,
                template,
                arithmetic,
            }
        };
        let recorded = identity("w", "k", "t", "a");
        let same = |is_recomputed| ModelMatch::Same { is_recomputed };
        let rows = [
            (identity("w", "k", "t", "a"), same(false)),
            (identity("w", "k", "t", "b"), same(true)),
            (identity("w", "k", "t", ""), same(false)),
            (identity("v", "k", "t", "a"), ModelMatch::Readable),
            (identity("w", "j", "t", "a"), ModelMatch::Other),
            (identity("w", "k", "s", "a"), ModelMatch::Other),
        ];
        for (loaded, expected) in rows {
            assert_eq!(ModelMatch::of(&recorded, &loaded), expected, "{loaded:?}");
        }
    }
}
