//! Prompts of texts and token ids.

use super::{EncodedPrompt, PromptEncoder};
use crate::error::ApiError;
use crate::prompt_limit::PromptLimit;
use crate::request::MixedPart;

impl PromptEncoder<'_> {
    /// Texts and ids, in order; only a text at the beginning has the tokens that the vocabulary puts around a text.
    pub(super) fn encode_mixed(
        self,
        parts: &[MixedPart],
        room: PromptLimit,
    ) -> Result<EncodedPrompt, ApiError> {
        let bytes = parts.iter().map(|part| match part {
            MixedPart::Text(text) => text.len(),
            MixedPart::Ids(_) => 0,
        });
        room.expect("prompt", bytes.sum())?;
        let mut all = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            match part {
                MixedPart::Text(text) => all.extend(self.text_ids(text, i == 0, true)?),
                MixedPart::Ids(ids) => all.extend_from_slice(ids),
            }
        }
        EncodedPrompt::plain(Ok(all), None)
    }
}
