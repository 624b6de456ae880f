//! Text to ids. (Stub: signatures only.)

use crate::VocabSpec;

/// Why a tokenizer could not be made, or a text not be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenizerError(pub String);

impl std::fmt::Display for TokenizerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for TokenizerError {}

/// Text to ids and back.
pub struct Tokenizer {}

impl Tokenizer {
    /// From GGUF metadata.
    pub fn from_vocab(_spec: VocabSpec) -> Result<Self, TokenizerError> {
        todo!()
    }
    /// From the bytes of a Hugging Face `tokenizer.json`.
    pub fn from_json(_json: &[u8]) -> Result<Self, TokenizerError> {
        todo!()
    }
    /// Ids of `text`. With `special`, texts of special tokens become those tokens; without, they
    /// are ordinary text (what a user typed must not become a control token). Nothing is added.
    pub fn encode(&self, _text: &str, _special: bool) -> Result<Vec<u32>, TokenizerError> {
        todo!()
    }
    /// The same with `bos` and `eos` added as the vocabulary asks, never doubled.
    pub fn encode_prompt(&self, _text: &str, _special: bool) -> Result<Vec<u32>, TokenizerError> {
        todo!()
    }
    /// The bytes a token stands for in running text (control tokens: none). `None`: no such id.
    pub fn bytes(&self, _id: u32) -> Option<&[u8]> {
        todo!()
    }
    /// The token's own text, as in the vocabulary (for logprobs of control tokens, `inspect`).
    pub fn piece(&self, _id: u32) -> Option<&str> {
        todo!()
    }
    /// The id of exactly this vocabulary entry.
    pub fn id_of(&self, _piece: &str) -> Option<u32> {
        todo!()
    }
    /// Whether the token is a control token (shown to nobody).
    pub fn is_control(&self, _id: u32) -> bool {
        todo!()
    }
    /// Entries in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        todo!()
    }
    /// Begin of sequence.
    pub fn bos(&self) -> Option<u32> {
        todo!()
    }
    /// Every token that ends a generation: eos, eot and the well-known end-of-turn names. Sorted.
    pub fn eos_ids(&self) -> &[u32] {
        todo!()
    }
}
