//! The pipeline of a `tokenizer.json`, run by the `tokenizers` crate.

use super::error::TokenizerError;
use crate::vocab::{TOKEN_BYTES_MAX, TOKENS_MAX};

/// A text that shows what the post-processor adds.
const PROBE: &str = "a";

/// The file's pipeline from text to ids.
pub(super) struct JsonPipeline {
    /// Recognizes special tokens in text.
    pub(super) special: tokenizers::Tokenizer,
    /// Treats special tokens as text. A second copy, since the library stores this choice in the tokenizer.
    plain: tokenizers::Tokenizer,
}

impl JsonPipeline {
    pub(super) fn new(json: &[u8]) -> Result<Self, TokenizerError> {
        let mut special = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|error| not_usable("tokenizer.json", error))?;
        // Prompts are neither truncated nor padded silently.
        special
            .with_truncation(None)
            .map_err(|error| not_usable("tokenizer.json", error))?;
        special.with_padding(None);
        let mut plain = special.clone();
        plain.set_encode_special_tokens(true);
        Ok(Self { special, plain })
    }

    /// Encodes `text`; all ids are below `tokens`.
    pub(super) fn encode(
        &self,
        text: &str,
        special: bool,
        tokens: usize,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let pipeline = if special { &self.special } else { &self.plain };
        let encoding = pipeline
            .encode_fast(text, false)
            .map_err(|error| TokenizerError(format!("the text could not be encoded: {error}")))?;
        if let Some(id) = encoding.get_ids().iter().find(|id| **id as usize >= tokens) {
            return Err(TokenizerError(format!(
                "the text has token {id}, and the model only {tokens} embeddings"
            )));
        }
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// Token texts by id; empty for unassigned ids.
    pub(super) fn tokens(&self) -> Result<Vec<String>, TokenizerError> {
        let vocab = self.special.get_vocab(true);
        let len = vocab.values().max().map_or(0, |id| *id as usize + 1);
        if len == 0 || len > TOKENS_MAX {
            return Err(TokenizerError(format!(
                "ids up to {len}; a vocabulary has 1 to {TOKENS_MAX}"
            )));
        }
        let mut tokens = vec![String::new(); len];
        for (token, id) in vocab {
            if token.len() > TOKEN_BYTES_MAX {
                return Err(TokenizerError(format!(
                    "token {id} has {} bytes; at most {TOKEN_BYTES_MAX} are accepted",
                    token.len()
                )));
            }
            tokens[id as usize] = token;
        }
        Ok(tokens)
    }

    /// How often the last token of a text stands between two texts that are encoded together; `None`: something else
    /// stands there, or nothing. Once with BERT's vocabularies, twice with XLM-R's.
    pub(super) fn ends_in_pair(&self) -> Option<usize> {
        let text = self.special.encode_fast(PROBE, false).ok()?;
        let text = text.get_ids();
        let pair = self.special.encode_fast((PROBE, PROBE), true).ok()?;
        let (&end, pair) = pair.get_ids().split_last()?;
        let between = pair.get(1..)?.strip_prefix(text)?.strip_suffix(text)?;
        let is_end = between.iter().all(|id| *id == end);
        (is_end && !between.is_empty()).then_some(between.len())
    }

    /// Whether an unknown token may stand for a text of any length.
    pub(super) fn unknown_is_any_text(&self) -> bool {
        use tokenizers::models::ModelWrapper::{Unigram, WordPiece};
        matches!(self.special.get_model(), WordPiece(_) | Unigram(_))
    }

    /// Tokens that the file's post-processor puts before and after a text.
    pub(super) fn added(&self) -> Result<(Option<u32>, Option<u32>), TokenizerError> {
        let ids = |add| {
            let encoding = self
                .special
                .encode_fast(PROBE, add)
                .map_err(|error| not_usable("tokenizer.json", error))?;
            Ok(encoding.get_ids().to_vec())
        };
        let (plain, processed) = (ids(false)?, ids(true)?);
        let at = processed
            .windows(plain.len().max(1))
            .position(|window| window == plain)
            .unwrap_or(0);
        let before = processed[..at].last().copied();
        Ok((before, processed.get(at + plain.len()).copied()))
    }
}

pub(super) fn not_usable(what: &str, error: impl std::fmt::Display) -> TokenizerError {
    TokenizerError(format!("{what} is not usable: {error}"))
}
