//! Ids of tokens that `tokenizer.json` has besides its vocabulary.

use super::SafetensorsError;
use super::limits::TOKENIZER_BYTES_MAX;
use super::shards::read_bounded;
use serde::Deserialize;
use std::path::Path;

/// The file with the vocabulary.
pub(super) const TOKENIZER: &str = "tokenizer.json";

#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// The id of the added token with this text, if the folder's tokenizer has one.
pub(super) fn find(folder: &Path, text: &str) -> Result<Option<u32>, SafetensorsError> {
    let path = folder.join(TOKENIZER);
    let bytes = read_bounded(&path, TOKENIZER_BYTES_MAX)?;
    let file: TokenizerFile =
        serde_json::from_slice(&bytes).map_err(SafetensorsError::json(&path))?;
    let mut tokens = file.added_tokens.iter();
    let found = tokens.find(|token| token.content == text);
    Ok(found.map(|token| token.id))
}
