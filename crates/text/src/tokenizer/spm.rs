//! SentencePiece BPE: neighbors join into the best-scored token; characters without a token fall back to byte
//! tokens.

use super::error::TokenizerError;
use super::merge_loop::{Join, Merger, NONE};
use super::string_arena::StringArena;
use crate::{TokenKind, VocabSpec};

/// The vocabulary's character for a space (U+2581).
pub(crate) const SPACE: char = '▁';

/// Scores and byte tokens.
pub(crate) struct Spm {
    /// By id: the cost of joining into this token; `NONE` for tokens that text never becomes.
    costs: Vec<u32>,
    bytes: ByteTokens,
    /// Longer texts equal no token.
    token_bytes_max: usize,
    /// Whether no token contains a space after another character; then words can be encoded separately with
    /// the same result.
    splits_before_space: bool,
    /// By id: whether a word equal to this token becomes the token directly, because joining gives the same.
    whole: Vec<bool>,
}

impl Spm {
    /// `spec.kinds` has one entry for each token.
    pub(crate) fn new(spec: &VocabSpec, pieces: &StringArena) -> Self {
        let mut spm = Self {
            costs: vec![NONE; spec.tokens.len()],
            bytes: ByteTokens::new(spec),
            token_bytes_max: 0,
            splits_before_space: true,
            whole: vec![false; spec.tokens.len()],
        };
        for (id, (text, kind)) in spec.tokens.iter().zip(&spec.kinds).enumerate() {
            match kind {
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => {
                    spm.costs[id] = cost_of(spec.scores.get(id).copied().unwrap_or_default());
                    spm.token_bytes_max = spm.token_bytes_max.max(text.len());
                    spm.splits_before_space &= !has_inner_space(text);
                }
                TokenKind::Byte | TokenKind::Unknown | TokenKind::Control => {}
            }
        }
        spm.whole = spm.whole_words(&spec.tokens, pieces);
        spm
    }

    /// Appends the ids of `text`, in which `SPACE` already replaces spaces.
    pub(crate) fn encode(
        &self,
        text: &str,
        pieces: &StringArena,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        words(text, self.splits_before_space)
            .try_for_each(|word| self.encode_word(word, pieces, merger, out))
    }

    /// Checks only tokens that begin with a space: other tokens are rarely words.
    fn whole_words(&self, tokens: &[String], pieces: &StringArena) -> Vec<bool> {
        let (mut merger, mut ids) = (Merger::default(), Vec::new());
        let mut makes = |id: u32, token: &str| {
            ids.clear();
            let encoded = self.encode_word(token, pieces, &mut merger, &mut ids);
            encoded.is_ok() && ids == [id]
        };
        let is_word = |id: usize| self.costs[id] != NONE && tokens[id].starts_with(SPACE);
        (0..tokens.len())
            .map(|id| is_word(id) && makes(id as u32, &tokens[id]))
            .collect()
    }

    fn encode_word(
        &self,
        word: &str,
        pieces: &StringArena,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if let Some(id) = pieces
            .find(word.as_bytes())
            .filter(|id| self.whole[*id as usize])
        {
            out.push(id);
            return Ok(());
        }
        merger.clear();
        for (at, written) in word.char_indices() {
            let len = written.len_utf8();
            let id = self
                .find(&word.as_bytes()[at..at + len], pieces)
                .map_or(NONE, |join| join.id);
            merger.push(len as u32, id);
        }
        merger.run(|left, right| {
            let (start, end) = (left.start as usize, (right.start + right.len) as usize);
            self.find(&word.as_bytes()[start..end], pieces)
        });
        self.bytes.push_symbols(word, merger, out)
    }

    fn find(&self, text: &[u8], pieces: &StringArena) -> Option<Join> {
        if text.len() > self.token_bytes_max {
            return None;
        }
        let id = pieces.find(text)?;
        let cost = self.costs[id as usize];
        (cost != NONE).then_some(Join { cost, id })
    }
}

/// The tokens of bytes, which characters without a token become.
pub(crate) struct ByteTokens {
    /// `NONE` where the vocabulary lacks the byte token.
    ids: [u32; 256],
    unknown: Option<u32>,
}

impl ByteTokens {
    /// `spec.kinds` has one entry for each token.
    pub(crate) fn new(spec: &VocabSpec) -> Self {
        let mut ids = [NONE; 256];
        for (id, (text, kind)) in spec.tokens.iter().zip(&spec.kinds).enumerate() {
            if let (TokenKind::Byte, Some(byte)) = (kind, byte_of(text)) {
                ids[usize::from(byte)] = id as u32;
            }
        }
        Self {
            ids,
            unknown: spec.unknown,
        }
    }

    /// Appends the ids of a word's symbols, and byte tokens for those without a token.
    pub(crate) fn push_symbols(
        &self,
        word: &str,
        merger: &Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        for symbol in merger.symbols() {
            if symbol.id == NONE {
                let (start, end) = (symbol.start as usize, (symbol.start + symbol.len) as usize);
                self.push(&word[start..end], out)?;
            } else {
                out.push(symbol.id);
            }
        }
        Ok(())
    }

    /// Appends the byte tokens of a character, or the unknown token where a byte token is missing.
    pub(crate) fn push(&self, character: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let ids = character.bytes().map(|byte| self.ids[usize::from(byte)]);
        if !ids.clone().any(|id| id == NONE) {
            out.extend(ids);
            return Ok(());
        }
        let missing = || {
            TokenizerError(format!(
                "no token for {character:?}, no byte tokens and no unknown token"
            ))
        };
        out.push(self.unknown.ok_or_else(missing)?);
        Ok(())
    }
}

/// The byte of a token `<0xNN>`.
pub(crate) fn byte_of(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_byte = hex.len() == 2 && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_byte.then(|| u8::from_str_radix(hex, 16).ok()).flatten()
}

/// Whether a space follows another character.
pub(crate) fn has_inner_space(text: &str) -> bool {
    word_ends(text).next().is_some()
}

/// Positions where a space follows another character.
fn word_ends(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices(SPACE)
        .map(|(at, _)| at)
        .filter(|at| *at > 0 && !text[..*at].ends_with(SPACE))
}

/// The parts of a text that are encoded separately: its words, or the whole text.
pub(crate) fn words(text: &str, are_split: bool) -> impl Iterator<Item = &str> {
    let ends = word_ends(text).take(if are_split { usize::MAX } else { 0 });
    let mut start = 0;
    ends.chain([text.len()]).map(move |end| {
        let word = &text[start..end];
        start = end;
        word
    })
}

/// Converts a score (highest first) to a cost (lowest first): the bits of a float, mirrored for one sign, are
/// ordered like floats.
fn cost_of(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    // Never `NONE`, which would be the bits of a NaN; the vocabulary's check rejects NaN.
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_preserve_score_order() {
        let scores = [f32::MAX, 3.5, 0.0, -0.5, -7.0, f32::MIN];
        assert!(
            scores
                .windows(2)
                .all(|pair| cost_of(pair[0]) < cost_of(pair[1]))
        );
        assert_eq!(cost_of(0.0), cost_of(-0.0));
        assert!(scores.iter().all(|score| cost_of(*score) != NONE));
    }

    #[test]
    fn byte_token_names_are_parsed() {
        assert_eq!(byte_of("<0x0A>"), Some(10));
        assert_eq!(byte_of("<0xfF>"), Some(255));
        for other in ["<0x0A", "<0x0>", "<0xG0>", "0x0A", "<0x+1>", ""] {
            assert_eq!(byte_of(other), None, "{other}");
        }
    }

    #[test]
    fn words_end_at_spaces() {
        assert_eq!(word_ends("▁▁a▁b▁▁c").collect::<Vec<_>>(), [7, 11]);
        assert_eq!(word_ends("▁▁").count(), 0);
    }
}
