//! The separator of BERT's vocabularies: tokens behind it are of the second type.

use super::SafetensorsError;
use super::added_tokens::{self, TOKENIZER};
use super::gguf_keys::GgufKeys;
use crate::config::encoder_kind::SEPARATOR_KEY;
use std::path::Path;

const SEPARATOR: &str = "[SEP]";

/// Writes the separator's id, if the folder has a tokenizer that names one.
pub(super) fn put(folder: &Path, keys: &mut GgufKeys) -> Result<(), SafetensorsError> {
    if !folder.join(TOKENIZER).exists() {
        return Ok(());
    }
    if let Some(id) = added_tokens::find(folder, SEPARATOR)? {
        keys.out.u32(SEPARATOR_KEY, id);
    }
    Ok(())
}
