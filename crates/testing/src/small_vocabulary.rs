//! The vocabulary of a fake model: bytes, two control tokens, a few longer tokens.

use crate::vocabulary::Vocabulary;
use std::sync::Arc;
use text::{InfillIds, Tokenizer};

/// End of sequence.
pub const EOS: u32 = 256;
/// Begin of sequence, which no encoding adds by itself.
pub const BOS: u32 = 257;
/// The first of [`WORDS`].
pub const WORD: u32 = 258;
/// Tokens of several characters, and a part of a character.
pub const WORDS: [&[u8]; 9] = [
    b"hello",
    b" world",
    b"ST",
    b"OP",
    "\u{20AC}".as_bytes(),
    b"\xe2\x82",
    b"<think>",
    b"</think>",
    b"<tool_call>",
];

/// gpt-oss's control tokens, which take the place of [`WORDS`] in a vocabulary of their own.
pub const CHANNELS: [&[u8]; 7] = [
    b"<|start|>",
    b"<|channel|>",
    b"<|message|>",
    b"<|end|>",
    b"<|constrain|>",
    b"<|call|>",
    b"<|return|>",
];

/// Tokens before, after and in the gap of a fill-in-the-middle prompt: the last three of [`WORDS`].
pub const INFILL: [u32; 3] = [WORD + 6, WORD + 7, WORD + 8];

/// The vocabulary with [`WORDS`].
pub fn tokenizer() -> Arc<Tokenizer> {
    let [prefix, suffix, middle] = INFILL.map(Some);
    let infill = InfillIds {
        prefix,
        suffix,
        middle,
        ..InfillIds::default()
    };
    let vocabulary = without_words().with_tokens(&WORDS);
    vocabulary.with_infill(infill).into_tokenizer()
}

/// The vocabulary with other words, from [`WORD`] on.
pub fn with_words(words: &[impl AsRef<[u8]>]) -> Arc<Tokenizer> {
    without_words().with_tokens(words).into_tokenizer()
}

/// The vocabulary with [`CHANNELS`].
pub fn in_channels() -> Arc<Tokenizer> {
    let channels = CHANNELS.map(String::from_utf8_lossy);
    let vocabulary = without_words().with_control_tokens(&channels);
    vocabulary.into_tokenizer()
}

fn without_words() -> Vocabulary {
    Vocabulary::of_bytes()
        .with_eos("<|eos|>")
        .with_bos("<|bos|>")
}
