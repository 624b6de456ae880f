//! WordPiece (BERT): each word becomes the longest tokens from its start to its end, or the unknown token.
//!
//! GGUF writes the first token of a word behind `▁`, and the others without the `##` of the published vocabularies.

use super::bert_words::BertWords;
use super::error::TokenizerError;
use super::spm::SPACE;
use super::string_arena::StringArena;
use crate::{TokenKind, VocabSpec};

/// Longer words become the unknown token, as in the published tokenizers.
const WORD_CHARACTERS_MAX: usize = 100;

/// Which tokens words may become.
pub(crate) struct WordPiece {
    words: BertWords,
    unknown: Option<u32>,
    /// By id: whether text may become this token.
    plain: Vec<bool>,
    /// Longer pieces of a word equal no token.
    token_bytes_max: usize,
}

impl WordPiece {
    /// `spec.kinds` has one entry for each token.
    pub(crate) fn new(spec: &VocabSpec) -> Self {
        let is_plain = |kind| matches!(kind, TokenKind::Normal | TokenKind::UserDefined);
        let plain: Vec<bool> = spec.kinds.iter().map(|kind| is_plain(*kind)).collect();
        let lengths = spec.tokens.iter().zip(&plain);
        Self {
            words: BertWords {
                lowercase: spec.lowercase,
                strip_accents: spec.strip_accents,
            },
            unknown: spec.unknown,
            token_bytes_max: lengths
                .filter(|(_, plain)| **plain)
                .map(|(token, _)| token.len())
                .max()
                .unwrap_or_default(),
            plain,
        }
    }

    /// Appends the ids of a text without special tokens.
    pub(crate) fn encode(
        &self,
        text: &str,
        pieces: &StringArena,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        self.words
            .split(text, SPACE, &mut |word| self.encode_word(word, pieces, out))
    }

    /// `word` begins with [`SPACE`].
    fn encode_word(
        &self,
        word: &str,
        pieces: &StringArena,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let first = out.len();
        // The first token has at least one character of the word.
        let mut least = SPACE.len_utf8() + 1;
        let mut rest = if word.chars().count() <= WORD_CHARACTERS_MAX + 1 {
            word
        } else {
            return self.push_unknown(word, out);
        };
        while !rest.is_empty() {
            let Some((id, len)) = self.longest(rest, least, pieces) else {
                out.truncate(first);
                return self.push_unknown(word, out);
            };
            out.push(id);
            (rest, least) = (&rest[len..], 1);
        }
        Ok(())
    }

    /// The longest token of at least `least` bytes that `text` begins with, and its length.
    fn longest(&self, text: &str, least: usize, pieces: &StringArena) -> Option<(u32, usize)> {
        let most = text.len().min(self.token_bytes_max);
        (least..=most)
            .rev()
            .filter(|len| text.is_char_boundary(*len))
            .find_map(|len| {
                let id = pieces.find(&text.as_bytes()[..len])?;
                self.plain[id as usize].then_some((id, len))
            })
    }

    fn push_unknown(&self, word: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let word = word.trim_start_matches(SPACE);
        let shown: String = word.chars().take(WORD_CHARACTERS_MAX).collect();
        let missing = || TokenizerError(format!("no tokens for {shown:?} and no unknown token"));
        out.push(self.unknown.ok_or_else(missing)?);
        Ok(())
    }
}
