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
    /// Readable list of the settings that decide the bits of a result.
    pub arithmetic: String,
}
