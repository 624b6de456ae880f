//! Vocabularies for bound calls: bytes, pieces that lie across the ends of marks, and the marks themselves as control
//! tokens, as words, or as their letters alone.

use proptest::prelude::Rng;
use proptest::test_runner::TestRng;
use std::sync::Arc;
use text::{TokenKind, Tokenizer, VocabModel, VocabSpec};

/// Ends an answer.
pub(crate) const EOS: u32 = 256;

/// How the marks of families are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marks {
    Control,
    Words,
    Letters,
}

const MARKS: [&str; 47] = [
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
    "◁think▷",
    "◁/think▷",
    "<|channel>",
    "<channel|>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "<start_function_call>",
    "<end_function_call>",
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "<|python_start|>",
    "<|python_end|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<escape>",
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
];

/// Pieces that no mark is, and in which some end or begin.
const PIECES: [&str; 30] = [
    "weather",
    "now",
    "any.thing",
    "\"name\"",
    "{\"",
    "{\"name",
    "\": \"",
    "\", \"",
    ">{",
    ">\n",
    ">w",
    "=weather",
    "]w",
    "[w",
    "[{",
    "[{\"",
    ";{",
    " {",
    "\n[",
    "`{",
    "json\n{",
    "|>{",
    "|>functions",
    "tool_call>",
    "</parameter>\n",
    " to=functions.now",
    "function",
    "=\"",
    "</",
    "commentary",
];

/// Whether this is one of the marks.
#[allow(dead_code, reason = "one test's own")]
pub(crate) fn is_mark(bytes: &[u8]) -> bool {
    MARKS.iter().any(|mark| mark.as_bytes() == bytes)
}

/// The vocabulary.
pub(crate) fn tokenizer(marks: Marks) -> Arc<Tokenizer> {
    let mut tokens: Vec<String> = (0..=255).map(|byte| spelled(&[byte])).collect();
    let mut kinds = vec![TokenKind::Normal; 256];
    tokens.push("</s>".to_owned());
    kinds.push(TokenKind::Control);
    tokens.extend(PIECES.iter().map(|piece| spelled(piece.as_bytes())));
    kinds.resize(tokens.len(), TokenKind::Normal);
    match marks {
        Marks::Control => {
            tokens.extend(MARKS.map(str::to_owned));
            kinds.resize(tokens.len(), TokenKind::Control);
        }
        Marks::Words => {
            tokens.extend(MARKS.iter().map(|mark| spelled(mark.as_bytes())));
            kinds.resize(tokens.len(), TokenKind::Normal);
        }
        Marks::Letters => {}
    }
    let spec = VocabSpec {
        model: VocabModel::Bpe,
        pre: Some("gpt-2".to_owned()),
        tokens,
        kinds,
        scores: Vec::new(),
        merges: Vec::new(),
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

/// The tokens that a text begins with and how many bytes each takes, mostly the longest first.
pub(crate) fn beginnings(
    tokenizer: &Tokenizer,
    text: &[u8],
    rng: &mut TestRng,
) -> Vec<(u32, usize)> {
    let count = u32::try_from(tokenizer.vocab_size()).expect("a small vocabulary");
    let shown = |id: u32| match tokenizer.is_control(id) {
        true => tokenizer.piece(id).unwrap_or_default().as_bytes(),
        false => tokenizer.bytes(id).unwrap_or_default(),
    };
    let fits = (0..count)
        .map(|id| (id, shown(id)))
        .filter(|(_, piece)| !piece.is_empty() && text.starts_with(piece));
    let mut fits: Vec<(u32, usize)> = fits.map(|(id, piece)| (id, piece.len())).collect();
    fits.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    if rng.next_u32().is_multiple_of(4) {
        fits.reverse();
    }
    fits
}

/// GPT-2's way of writing any byte as a printable character.
fn spelled(bytes: &[u8]) -> String {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let spell = |&byte: &u8| {
        let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
        match printable(byte) {
            true => char::from(byte),
            false => char::from_u32(0x100 + before).unwrap_or_default(),
        }
    };
    bytes.iter().map(spell).collect()
}
