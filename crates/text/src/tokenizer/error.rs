//! Errors of tokenizers.

/// Why a tokenizer cannot be constructed or a text cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(pub String);
