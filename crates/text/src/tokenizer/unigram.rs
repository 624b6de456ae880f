//! Unigram (XLM-R): the most probable tokens of a whole text, by the sum of their scores.

use super::char_map::CharMap;
use super::error::TokenizerError;
use super::spm::SPACE;
use super::string_arena::StringArena;
use crate::{TokenKind, VocabSpec};

/// How much less than the lowest score the unknown token has, as in SentencePiece.
const UNKNOWN_PENALTY: f64 = 10.0;

/// Tokens in alphabetical order, and their scores.
pub(crate) struct Unigram {
    map: CharMap,
    /// Ids of the tokens that text may become, ordered by their bytes.
    sorted: Vec<u32>,
    /// By id.
    scores: Vec<f32>,
    unknown: Option<u32>,
    unknown_score: f64,
    /// Whether several spaces are one, and spaces at the ends none.
    merge_spaces: bool,
    /// Whether a space is put before the first word.
    first_space: bool,
}

/// The best tokens of a text's beginning.
#[derive(Clone, Copy)]
struct BestPath {
    score: f64,
    /// Where the last token begins.
    start: usize,
    /// `None`: the unknown token.
    id: Option<u32>,
}

impl Unigram {
    /// `spec.kinds` has one entry for each token.
    pub(crate) fn new(spec: &VocabSpec) -> Result<Self, TokenizerError> {
        let is_plain = |id: &u32| {
            let kind = spec.kinds[*id as usize];
            matches!(
                kind,
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused
            )
        };
        let mut sorted: Vec<u32> = (0..spec.tokens.len() as u32).filter(is_plain).collect();
        sorted.sort_unstable_by_key(|id| spec.tokens[*id as usize].as_bytes());
        let normal = spec.scores.iter().zip(&spec.kinds);
        let lowest = normal
            .filter(|(_, kind)| **kind == TokenKind::Normal)
            .fold(0.0f64, |least, (score, _)| least.min(f64::from(*score)));
        Ok(Self {
            map: CharMap::new(&spec.char_map)?,
            sorted,
            scores: spec.scores.clone(),
            unknown: spec.unknown,
            unknown_score: lowest - UNKNOWN_PENALTY,
            merge_spaces: spec.merge_spaces,
            first_space: spec.add_space_prefix.unwrap_or(true),
        })
    }

    /// Appends the ids of a text without special tokens.
    pub(crate) fn encode(
        &self,
        text: &str,
        pieces: &StringArena,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let text = self.normalize(text);
        let best = self.best_paths(&text, pieces);
        let (first, mut end, mut is_unknown) = (out.len(), text.len(), false);
        while end > 0 {
            let BestPath { start, id, .. } = best[end];
            let missing = || TokenizerError("no token for a text, and no unknown token".into());
            match id {
                Some(id) => out.push(id),
                // Unknown characters side by side are one token.
                None if !is_unknown => out.push(self.unknown.ok_or_else(missing)?),
                None => {}
            }
            (is_unknown, end) = (id.is_none(), start);
        }
        out[first..].reverse();
        Ok(())
    }

    /// The text with characters replaced and spaces as the vocabulary writes them.
    fn normalize(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 3);
        let (mut in_word, mut is_first) = (false, true);
        self.map.replace(text, |piece| {
            for written in piece.chars() {
                match written {
                    ' ' if !self.merge_spaces => out.push(SPACE),
                    ' ' => {}
                    _ => {
                        let begins = !in_word && (self.merge_spaces || is_first);
                        if begins && (self.first_space || !is_first) {
                            out.push(SPACE);
                        }
                        out.push(written);
                        is_first = false;
                    }
                }
                in_word = written != ' ';
            }
        });
        out
    }

    /// By end in bytes: the best tokens of the text up to there.
    fn best_paths(&self, text: &str, pieces: &StringArena) -> Vec<BestPath> {
        let unreached = BestPath {
            score: f64::NEG_INFINITY,
            start: 0,
            id: None,
        };
        let mut best = vec![unreached; text.len() + 1];
        best[0].score = 0.0;
        for (start, written) in text.char_indices() {
            let before = best[start].score;
            let mut offer = |len: usize, score: f64, id: Option<u32>| {
                let score = before + score;
                if score > best[start + len].score {
                    best[start + len] = BestPath { score, start, id };
                }
            };
            let mut has_character = false;
            self.each_prefix(&text.as_bytes()[start..], pieces, |len, id| {
                has_character |= len == written.len_utf8();
                offer(len, f64::from(self.scores[id as usize]), Some(id));
            });
            if !has_character {
                offer(written.len_utf8(), self.unknown_score, None);
            }
        }
        best
    }

    /// Passes all tokens that `text` begins with to `each`, the shortest first.
    fn each_prefix(&self, text: &[u8], pieces: &StringArena, mut each: impl FnMut(usize, u32)) {
        let mut range = &self.sorted[..];
        for (depth, byte) in text.iter().enumerate() {
            // Tokens that end here come first.
            let next = |id: &u32| pieces.get(*id).and_then(|piece| piece.get(depth).copied());
            let start = range.partition_point(|id| next(id) < Some(*byte));
            let end = range.partition_point(|id| next(id) <= Some(*byte));
            range = &range[start..end];
            match range.first() {
                None => return,
                Some(&id) if pieces.get(id).map(<[u8]>::len) == Some(depth + 1) => {
                    each(depth + 1, id);
                }
                Some(_) => {}
            }
        }
    }
}
