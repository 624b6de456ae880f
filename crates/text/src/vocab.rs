//! A vocabulary as plain data, as GGUF metadata gives it (`tokenizer.ggml.*`).

/// Which algorithm turns text into ids (`tokenizer.ggml.model`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabModel {
    /// `gpt2`: byte-level BPE with merges.
    Bpe,
    /// `llama`: SentencePiece BPE with scores and byte fallback.
    Spm,
}

/// What a token is (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)]
pub enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// A vocabulary as plain data.
#[derive(Clone, Debug)]
pub struct VocabSpec {
    /// Which algorithm.
    pub model: VocabModel,
    /// Pre-tokenizer's name (`tokenizer.ggml.pre`), for BPE.
    pub pre: Option<String>,
    /// Token texts, by id.
    pub tokens: Vec<String>,
    /// Token kinds, by id; empty = all normal.
    pub kinds: Vec<TokenKind>,
    /// Scores, by id (SPM).
    pub scores: Vec<f32>,
    /// Merges, `"left right"`, best first (BPE).
    pub merges: Vec<String>,
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn (`eot`), where the file names one.
    pub eot: Option<u32>,
    /// Unknown token.
    pub unknown: Option<u32>,
    /// Whether a prompt begins with `bos`; `None` = the algorithm's default.
    pub add_bos: Option<bool>,
    /// Whether a prompt ends with `eos`.
    pub add_eos: Option<bool>,
    /// Whether a space is put before the first word (SPM); `None` = the algorithm's default.
    pub add_space_prefix: Option<bool>,
}
