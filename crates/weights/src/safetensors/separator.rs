//! The separator of BERT's vocabularies: tokens behind it are of the second type.

use super::SafetensorsError;
use super::gguf_keys::GgufKeys;
use super::limits::TOKENIZER_BYTES_MAX;
use super::shards::read_bounded;
use crate::config::encoder_kind::SEPARATOR_KEY;
use serde::Deserialize;
use std::path::Path;

/// The file with the vocabulary.
pub(super) const TOKENIZER: &str = "tokenizer.json";
const SEPARATOR: &str = "[SEP]";

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

/// Writes the separator's id, if the folder has a tokenizer that names one.
pub(super) fn put(folder: &Path, keys: &mut GgufKeys) -> Result<(), SafetensorsError> {
    let path = folder.join(TOKENIZER);
    if !path.exists() {
        return Ok(());
    }
    let text = read_bounded(&path, TOKENIZER_BYTES_MAX)?;
    let file: TokenizerFile =
        serde_json::from_slice(&text).map_err(SafetensorsError::json(&path))?;
    let mut tokens = file.added_tokens.iter();
    if let Some(separator) = tokens.find(|token| token.content == SEPARATOR) {
        keys.out.u32(SEPARATOR_KEY, separator.id);
    }
    Ok(())
}
