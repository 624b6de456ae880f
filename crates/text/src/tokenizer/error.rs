//! Errors of tokenizers.

/// Why a tokenizer cannot be constructed or a text cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerError(pub String);

impl std::fmt::Display for TokenizerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TokenizerError {}
