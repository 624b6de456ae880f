//! A vocabulary as plain data, as in GGUF metadata (`tokenizer.ggml.*`).

use crate::TokenizerError;

/// Most entries of a vocabulary. The largest in use have 262,144.
pub const TOKENS_MAX: usize = 1 << 21;
/// Longest text of one token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1 << 16;
/// All token texts together, in bytes.
pub const VOCAB_BYTES_MAX: usize = 1 << 28;
/// Most merges. The largest lists in use have half a million.
pub const MERGES_MAX: usize = 1 << 22;

/// Which algorithm turns text into ids (`tokenizer.ggml.model`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabModel {
    /// `gpt2`: byte-level BPE with merges.
    Bpe,
    /// `gemma4`: BPE with merges over characters, spaces as `▁`, and byte fallback.
    CharBpe,
    /// `llama`: SentencePiece BPE with scores and byte fallback.
    Spm,
    /// `t5`: SentencePiece Unigram with scores, as in XLM-R.
    Unigram,
    /// `bert`: WordPiece over BERT's words.
    WordPiece,
}

/// Type of a token (`tokenizer.ggml.token_type`).
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

/// Ids of the tokens of fill-in-the-middle prompts, as far as a vocabulary has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfillIds {
    /// Begins the text before the gap.
    pub prefix: Option<u32>,
    /// Begins the text after the gap.
    pub suffix: Option<u32>,
    /// Begins the text of the gap.
    pub middle: Option<u32>,
    /// Fills batches in training.
    pub padding: Option<u32>,
    /// Begins the name of a repository.
    pub repository: Option<u32>,
    /// Begins a file: its name, and in the next line its text.
    pub file: Option<u32>,
}

impl InfillIds {
    /// Tokens that a model writes only after the text of the gap.
    pub(crate) fn ends(self) -> [Option<u32>; 3] {
        [self.padding, self.repository, self.file]
    }
}

/// A vocabulary as plain data.
#[derive(Clone, Debug)]
pub struct VocabSpec {
    /// Encoding algorithm.
    pub model: VocabModel,
    /// Pre-tokenizer's name (`tokenizer.ggml.pre`), for BPE.
    pub pre: Option<String>,
    /// Token texts, by id.
    pub tokens: Vec<String>,
    /// Token kinds, by id; empty = all normal.
    pub kinds: Vec<TokenKind>,
    /// Scores, by id (SPM, Unigram).
    pub scores: Vec<f32>,
    /// Merges, `"left right"`, best first (BPE).
    pub merges: Vec<String>,
    /// Begin of sequence.
    pub bos: Option<u32>,
    /// End of sequence; of WordPiece, the separator.
    pub eos: Option<u32>,
    /// End of turn (`eot`), where the file names one.
    pub eot: Option<u32>,
    /// Tokens of fill-in-the-middle prompts, as far as the file names them.
    pub infill: InfillIds,
    /// Unknown token.
    pub unknown: Option<u32>,
    /// Whether a prompt begins with `bos`; `None` = the algorithm's default.
    pub add_bos: Option<bool>,
    /// Whether a prompt ends with `eos`.
    pub add_eos: Option<bool>,
    /// Whether a space is put before the first word (SPM); `None` = the algorithm's default.
    pub add_space_prefix: Option<bool>,
    /// Whether several spaces are one (Unigram).
    pub merge_spaces: bool,
    /// SentencePiece's compiled map of characters (Unigram); may be empty.
    pub char_map: Vec<u8>,
    /// Whether words are in lower case (WordPiece).
    pub lowercase: bool,
    /// Whether accents are removed (WordPiece).
    pub strip_accents: bool,
}

impl VocabSpec {
    /// Checks sizes, ids and numbers separately; building the tokenizer checks their consistency.
    pub(crate) fn check(&self) -> Result<(), TokenizerError> {
        self.check_sizes()?;
        self.check_lists()?;
        let named = [
            ("bos", self.bos),
            ("eos", self.eos),
            ("eot", self.eot),
            ("unknown", self.unknown),
            ("fim_pre", self.infill.prefix),
            ("fim_suf", self.infill.suffix),
            ("fim_mid", self.infill.middle),
            ("fim_pad", self.infill.padding),
            ("fim_rep", self.infill.repository),
            ("fim_sep", self.infill.file),
        ];
        for (name, id) in named {
            if let Some(id) = id.filter(|id| *id as usize >= self.tokens.len()) {
                return fail(format!(
                    "the {name} token is {id}, but the vocabulary has {} tokens",
                    self.tokens.len()
                ));
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), TokenizerError> {
        if self.tokens.is_empty() {
            return fail("the vocabulary is empty".into());
        }
        if self.tokens.len() > TOKENS_MAX {
            return fail(format!(
                "{} tokens; at most {TOKENS_MAX} are accepted",
                self.tokens.len()
            ));
        }
        if self.merges.len() > MERGES_MAX {
            return fail(format!(
                "{} merges; at most {MERGES_MAX} are accepted",
                self.merges.len()
            ));
        }
        if let Some(id) = self
            .tokens
            .iter()
            .position(|token| token.len() > TOKEN_BYTES_MAX)
        {
            let bytes = self.tokens[id].len();
            return fail(format!(
                "token {id} has {bytes} bytes; at most {TOKEN_BYTES_MAX} are accepted"
            ));
        }
        let bytes = self.tokens.iter().map(String::len).sum::<usize>();
        if bytes > VOCAB_BYTES_MAX {
            return fail(format!(
                "the tokens have {bytes} bytes; at most {VOCAB_BYTES_MAX} are accepted"
            ));
        }
        Ok(())
    }

    fn check_lists(&self) -> Result<(), TokenizerError> {
        let tokens = self.tokens.len();
        if !self.kinds.is_empty() && self.kinds.len() != tokens {
            return fail(format!(
                "{} token kinds for {tokens} tokens",
                self.kinds.len()
            ));
        }
        let is_scored = matches!(self.model, VocabModel::Spm | VocabModel::Unigram);
        if is_scored && self.scores.len() != tokens {
            return fail(format!("{} scores for {tokens} tokens", self.scores.len()));
        }
        let bad = self.scores.iter().position(|score| score.is_nan());
        if let (true, Some(id)) = (is_scored, bad) {
            return fail(format!("the score of token {id} is not a number"));
        }
        Ok(())
    }
}

fn fail(why: String) -> Result<(), TokenizerError> {
    Err(TokenizerError(why))
}
