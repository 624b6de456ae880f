//! Whether a loaded model is the model of a recovered stream, by content.

use crate::models::ModelIdentity;

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
