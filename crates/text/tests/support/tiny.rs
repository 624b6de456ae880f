//! A small vocabulary: every byte, and some tokens that JSON is made of.

use std::sync::Arc;
use text::{TokenKind, Tokenizer, VocabModel, VocabSpec};

/// Merges, best first; each side is a byte or made before.
const MERGES: [&str; 16] = [
    "t r", "u e", "tr ue", "n u", "l l", "nu ll", "{ \"", "\" :", "\" ,", "\" }", "Ġ \"", "Ċ Ġ",
    "Ċ Ċ", "1 0", "f o", "fo o",
];

/// Ends an answer.
pub(crate) const EOS: u32 = 256 + MERGES.len() as u32;

/// The vocabulary: bytes, [`MERGES`], `</s>`, and a control token called `<tool>`.
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = (0..=255).map(spelled).collect();
    tokens.extend(MERGES.iter().map(|merge| merge.replace(' ', "")));
    tokens.extend(["</s>".to_owned(), "<tool>".to_owned()]);
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    kinds[EOS as usize..].fill(TokenKind::Control);
    let spec = VocabSpec {
        model: VocabModel::Bpe,
        pre: Some("gpt-2".to_owned()),
        tokens,
        kinds,
        scores: Vec::new(),
        merges: MERGES.map(str::to_owned).to_vec(),
        bos: None,
        eos: Some(EOS),
        eot: None,
        unknown: None,
        add_bos: Some(false),
        add_eos: Some(false),
        add_space_prefix: Some(false),
    };
    Arc::new(Tokenizer::from_vocab(spec).expect("a vocabulary of bytes"))
}

/// GPT-2's way of writing any byte as a printable character.
fn spelled(byte: u8) -> String {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte).to_string();
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + before).map_or_else(String::new, String::from)
}
