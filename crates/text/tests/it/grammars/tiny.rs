//! A small vocabulary: every byte, and some tokens that JSON is made of.

use std::sync::Arc;
use testing::vocabulary::Vocabulary;
use text::Tokenizer;

/// Merges, best first; each side is a byte or made before.
const MERGES: [&str; 16] = [
    "t r", "u e", "tr ue", "n u", "l l", "nu ll", "{ \"", "\" :", "\" ,", "\" }", "Ġ \"", "Ċ Ġ",
    "Ċ Ċ", "1 0", "f o", "fo o",
];

/// Ends an answer.
pub(crate) const EOS: u32 = 256 + MERGES.len() as u32;

/// The vocabulary: bytes, [`MERGES`], `</s>`, and a control token called `<tool>`.
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    Vocabulary::of_bytes()
        .with_merges(&MERGES)
        .with_eos("</s>")
        .with_control_tokens(&["<tool>"])
        .into_tokenizer()
}
