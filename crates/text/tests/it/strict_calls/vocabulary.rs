//! Vocabularies for constrained calls: bytes, pieces that straddle the ends of delimiters, and the delimiters
//! themselves as control tokens, as words, or as letters.

use proptest::prelude::Rng;
use proptest::test_runner::TestRng;
use std::sync::Arc;
use testing::vocabulary::Vocabulary;
use text::Tokenizer;

/// End-of-sequence token.
pub(crate) const EOS: u32 = 256;

/// Representation of delimiters in a vocabulary.
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

/// Pieces that are no delimiters, but in which delimiters end or begin.
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

/// Whether the text is a delimiter.
pub(crate) fn is_mark(bytes: &[u8]) -> bool {
    MARKS.iter().any(|mark| mark.as_bytes() == bytes)
}

/// The vocabulary.
pub(crate) fn tokenizer(marks: Marks) -> Arc<Tokenizer> {
    let vocabulary = Vocabulary::of_bytes().with_eos("</s>").with_tokens(&PIECES);
    let vocabulary = match marks {
        Marks::Control => vocabulary.with_control_tokens(&MARKS),
        Marks::Words => vocabulary.with_tokens(&MARKS),
        Marks::Letters => vocabulary,
    };
    vocabulary.into_tokenizer()
}

/// Tokens that a text begins with, and their lengths in bytes, mostly the longest first.
pub(crate) fn beginnings(
    tokenizer: &Tokenizer,
    text: &[u8],
    rng: &mut TestRng,
) -> Vec<(u32, usize)> {
    let count = u32::try_from(tokenizer.vocab_size()).expect("a small vocabulary");
    let shown = |id: u32| {
        if tokenizer.is_control(id) {
            tokenizer.piece(id).unwrap_or_default().as_bytes()
        } else {
            tokenizer.bytes(id).unwrap_or_default()
        }
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
