//! Ids to text, one at a time. (Stub: signatures only.)

use crate::Tokenizer;
use std::sync::Arc;

/// Turns ids into text incrementally: O(1) per token, never splits UTF-8, never retracts.
pub struct Decoder {
    _tokenizer: Arc<Tokenizer>,
}

impl Decoder {
    /// A decoder at the start of an answer. `at_text_start`: whether the first token opens a text
    /// (SPM then drops the space it added), as after an empty prompt; false in the middle of one.
    pub fn new(tokenizer: Arc<Tokenizer>, _at_text_start: bool) -> Self {
        Self { _tokenizer: tokenizer }
    }
    /// Appends to `out` the text that became certain with this token. Bytes that cannot be UTF-8
    /// become U+FFFD, as `String::from_utf8_lossy` would have it over the whole.
    pub fn push(&mut self, _id: u32, _out: &mut String) {
        todo!()
    }
    /// Appends what is still held (an unfinished character becomes U+FFFD).
    pub fn finish(&mut self, _out: &mut String) {
        todo!()
    }
    /// Starts again, keeping memory.
    pub fn reset(&mut self) {
        todo!()
    }
}
