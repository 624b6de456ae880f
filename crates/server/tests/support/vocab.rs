//! A vocabulary anybody can check by eye: id = byte, then a few longer tokens and two controls.
#![allow(dead_code, reason = "each user takes its part")]

use std::sync::Arc;
use text::{TokenKind, Tokenizer, VocabModel, VocabSpec};

/// End of sequence.
pub(crate) const EOS: u32 = 256;
/// Begin of sequence, never added by itself.
pub(crate) const BOS: u32 = 257;
/// The first of [`WORDS`].
pub(crate) const WORD: u32 = 258;
/// Tokens of several characters, and a half one.
pub(crate) const WORDS: [&[u8]; 9] = [
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

/// gpt-oss's control tokens, which stand in the place of [`WORDS`] in a vocabulary of their own.
pub(crate) const CHANNELS: [&[u8]; 7] = [
    b"<|start|>",
    b"<|channel|>",
    b"<|message|>",
    b"<|end|>",
    b"<|constrain|>",
    b"<|call|>",
    b"<|return|>",
];

/// GPT-2's way of writing any byte as a printable character.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count();
    char::from_u32(0x100 + u32::try_from(before).unwrap()).unwrap()
}

/// The vocabulary.
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    with_words(&WORDS)
}

/// The same with other words, from [`WORD`] on.
pub(crate) fn with_words(words: &[impl AsRef<[u8]>]) -> Arc<Tokenizer> {
    of(words, TokenKind::Normal)
}

/// The same with the control tokens of channels.
pub(crate) fn in_channels() -> Arc<Tokenizer> {
    of(&CHANNELS, TokenKind::Control)
}

fn of(words: &[impl AsRef<[u8]>], kind: TokenKind) -> Arc<Tokenizer> {
    let spelled = |bytes: &[u8]| bytes.iter().map(|&b| byte_char(b)).collect::<String>();
    let mut tokens: Vec<String> = (0..=255).map(|b| spelled(&[b])).collect();
    let mut kinds = vec![TokenKind::Normal; 256];
    tokens.extend(["<|eos|>".to_owned(), "<|bos|>".to_owned()]);
    kinds.extend([TokenKind::Control, TokenKind::Control]);
    let as_is = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    tokens.extend(words.iter().map(|word| match kind {
        TokenKind::Control => as_is(word.as_ref()),
        _ => spelled(word.as_ref()),
    }));
    kinds.resize(tokens.len(), kind);
    let spec = VocabSpec {
        model: VocabModel::Bpe,
        pre: Some("gpt-2".to_owned()),
        tokens,
        kinds,
        scores: Vec::new(),
        merges: Vec::new(),
        bos: Some(BOS),
        eos: Some(EOS),
        eot: None,
        unknown: None,
        add_bos: Some(false),
        add_eos: Some(false),
        add_space_prefix: Some(false),
    };
    Arc::new(Tokenizer::from_vocab(spec).expect("a vocabulary of bytes"))
}
