//! BPE with merges over characters, as in Gemma 4: a text is one word, spaces are written `▁`, and characters without
//! a token become byte tokens.

use super::error::TokenizerError;
use super::merge_loop::{Join, Merger, NONE};
use super::merges::Merges;
use super::spm::{ByteTokens, SPACE, has_inner_space, words};
use super::string_arena::StringArena;
use crate::{TokenKind, VocabSpec};

/// Merges, and the tokens of bytes.
pub(crate) struct CharBpe {
    merges: Merges,
    bytes: ByteTokens,
    /// Whether no token contains a space after another character; then words can be encoded separately with the
    /// same result.
    splits_before_space: bool,
    /// By id: whether a word equal to this token becomes the token directly, because merging gives the same.
    whole: Vec<bool>,
}

impl CharBpe {
    /// Also returns the number of omitted merges: those that would create a control token from plain text.
    pub(crate) fn new(
        spec: &VocabSpec,
        pieces: &StringArena,
    ) -> Result<(Self, usize), TokenizerError> {
        let (merges, left_out) = Merges::read(spec, pieces)?;
        let tokens = || spec.tokens.iter().zip(&spec.kinds);
        let mut normal = tokens().filter(|(_, kind)| **kind == TokenKind::Normal);
        let mut bpe = Self {
            merges,
            bytes: ByteTokens::new(spec),
            splits_before_space: !normal.any(|(token, _)| has_inner_space(token)),
            whole: Vec::new(),
        };
        // Only tokens that begin with a space: other tokens are rarely words.
        let (mut merger, mut ids) = (Merger::default(), Vec::new());
        let mut makes = |id: usize, token: &str| {
            ids.clear();
            let merged = bpe.merge(token, pieces, &mut merger, &mut ids);
            merged.is_ok() && ids == [id as u32]
        };
        let whole = tokens().enumerate().map(|(id, (token, kind))| {
            *kind == TokenKind::Normal && token.starts_with(SPACE) && makes(id, token)
        });
        bpe.whole = whole.collect();
        Ok((bpe, left_out))
    }

    /// Appends the ids of `text`. Line breaks are merged on their own, and a run of them that is a token becomes this
    /// token.
    pub(crate) fn encode(
        &self,
        text: &str,
        pieces: &StringArena,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let written = text.replace(' ', SPACE.encode_utf8(&mut [0; 4]));
        let mut rest = written.as_str();
        while !rest.is_empty() {
            let is_break = rest.starts_with('\n');
            let end = rest
                .find(|written| (written == '\n') != is_break)
                .unwrap_or(rest.len());
            let (part, others) = rest.split_at(end);
            rest = others;
            match pieces.find(part.as_bytes()).filter(|_| is_break) {
                Some(id) => out.push(id),
                None => words(part, self.splits_before_space)
                    .try_for_each(|word| self.encode_word(word, pieces, merger, out))?,
            }
        }
        Ok(())
    }

    fn encode_word(
        &self,
        word: &str,
        pieces: &StringArena,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let known = pieces.find(word.as_bytes());
        match known.filter(|id| self.whole[*id as usize]) {
            Some(id) => out.push(id),
            None => self.merge(word, pieces, merger, out)?,
        }
        Ok(())
    }

    fn merge(
        &self,
        word: &str,
        pieces: &StringArena,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        merger.clear();
        for (at, written) in word.char_indices() {
            let len = written.len_utf8();
            let id = pieces.find(&word.as_bytes()[at..at + len]).unwrap_or(NONE);
            merger.push(len as u32, id);
        }
        merger.run(|left, right| {
            self.merges.of(left.id, right.id).map(|merge| Join {
                cost: merge.rank,
                id: merge.id,
            })
        });
        self.bytes.push_symbols(word, merger, out)
    }
}
