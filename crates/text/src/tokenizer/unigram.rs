//! Unigram (XLM-R): the most probable tokens of a whole text, by the sum of their scores.
//!
//! SentencePiece's compiled map of characters (`precompiled_charsmap`): replacements of the longest known prefix.
//!
//! The map is a double array of 32-bit units in the layout of darts-clone, and the replacements, each ended by a zero
//! byte. A unit has its label in bits 0 to 7, a flag for a value among its children in bit 8, and the offset of its
//! children in bits 10 to 30 (shifted by 8 if bit 9 is set); a unit with bit 31 is a value.

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

const LENGTH_BYTES: usize = 4;
const VALUE: u32 = 1 << 31;
const HAS_VALUE: u32 = 1 << 8;

/// A map of characters; empty: all stay.
#[derive(Default)]
struct CharMap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl CharMap {
    /// From the bytes in a vocabulary.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, TokenizerError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |why: &str| TokenizerError(format!("precompiled_charsmap: {why}"));
        let (length, rest) = bytes
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or_else(|| wrong("is shorter than its length field"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let (units, replacements) = rest
            .split_at_checked(length)
            .ok_or_else(|| wrong("is shorter than it says"))?;
        let (units, odd) = units.as_chunks::<4>();
        if !odd.is_empty() || units.is_empty() {
            return Err(wrong("has no whole number of units"));
        }
        if std::str::from_utf8(replacements).is_err() {
            return Err(wrong("has replacements that are not UTF-8"));
        }
        Ok(Self {
            units: units.iter().map(|unit| u32::from_le_bytes(*unit)).collect(),
            replacements: replacements.to_vec(),
        })
    }

    /// Passes the pieces of the replaced text to `each`, in order.
    pub(crate) fn replace(&self, text: &str, mut each: impl FnMut(&str)) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (len, replacement) = self
                .longest_prefix(rest.as_bytes())
                .filter(|(len, _)| rest.is_char_boundary(*len))
                .unwrap_or((first.len_utf8(), &rest[..first.len_utf8()]));
            each(replacement);
            rest = &rest[len..];
        }
    }

    /// Length and replacement of the longest known prefix. Each offset is compared with the bounds: a map may hold any
    /// numbers.
    fn longest_prefix(&self, text: &[u8]) -> Option<(usize, &str)> {
        let mut at = offset(*self.units.first()?) as usize;
        let mut longest = None;
        for (i, &byte) in text.iter().enumerate() {
            at ^= usize::from(byte);
            let unit = self.units.get(at).copied().unwrap_or(VALUE);
            if byte == 0 || unit & (VALUE | 0xff) != u32::from(byte) {
                break;
            }
            at ^= offset(unit) as usize;
            let value = self.units.get(at).filter(|_| unit & HAS_VALUE != 0);
            let found = value.and_then(|value| self.replacement(value & !VALUE));
            longest = found.map(|text| (i + 1, text)).or(longest);
        }
        longest
    }

    fn replacement(&self, start: u32) -> Option<&str> {
        let bytes = self.replacements.get(start as usize..)?;
        let len = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(&bytes[..len]).ok()
    }
}

/// The offset of a unit's children.
fn offset(unit: u32) -> u32 {
    let shift = (unit & (1 << 9)) >> 6;
    ((unit >> 10) & 0x1f_ffff) << shift
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A map of these prefixes. Every node has a block of 256 units of its own, so that no two collide; the first is
    /// the root's.
    pub(crate) fn compile(rows: &[(&str, &str)]) -> Vec<u8> {
        const BLOCK: usize = 512;
        let mut units = vec![0u32; BLOCK];
        let mut replacements = Vec::new();
        // By node: the prefix and the offset of the children.
        let mut nodes: Vec<(Vec<u8>, usize)> = vec![(Vec::new(), 256)];
        units[0] = 256 << 10;
        for (prefix, replacement) in rows {
            let value = replacements.len() as u32;
            replacements.extend_from_slice(replacement.as_bytes());
            replacements.push(0);
            for end in 1..=prefix.len() {
                let path = &prefix.as_bytes()[..end];
                if nodes.iter().any(|(known, _)| known == path) {
                    continue;
                }
                let base = |path: &[u8]| nodes.iter().find(|(known, _)| known == path).unwrap().1;
                let at = base(&path[..end - 1]) ^ usize::from(path[end - 1]);
                let children = units.len();
                units.resize(children + 256, 0);
                units[at] = ((at ^ children) as u32) << 10 | u32::from(path[end - 1]);
                nodes.push((path.to_vec(), children));
            }
            let (parent, last) = prefix.as_bytes().split_at(prefix.len() - 1);
            let find = |path: &[u8]| nodes.iter().find(|(known, _)| known == path).unwrap().1;
            let at = find(parent) ^ usize::from(last[0]);
            units[at] |= 1 << 8;
            let children = find(prefix.as_bytes());
            units[children] = VALUE | value;
        }
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(replacements);
        bytes
    }

    fn replaced(map: &CharMap, text: &str) -> String {
        let mut out = String::new();
        map.replace(text, |piece| out.push_str(piece));
        out
    }

    #[test]
    fn longest_prefixes_are_replaced() {
        let rows = [
            ("é", "e"),
            ("ﬁ", "fi"),
            ("ab", "X"),
            ("abc", "Y"),
            ("\u{200b}", ""),
        ];
        let map = CharMap::new(&compile(&rows)).unwrap();
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("é", "e"),
            ("caféﬁ", "cafefi"),
            ("abd abc a", "Xd Y a"),
            ("a\u{200b}b", "ab"),
            ("漢", "漢"),
        ] {
            assert_eq!(replaced(&map, text), expected, "{text:?}");
        }
        assert_eq!(replaced(&CharMap::default(), "é\0x"), "é\0x");
    }

    #[test]
    fn damaged_maps_are_errors_or_keep_the_text() {
        for (bytes, expected) in [
            (vec![1, 2], "shorter than its length field"),
            (vec![200, 0, 0, 0, 1], "shorter than it says"),
            (vec![3, 0, 0, 0, 1, 2, 3], "no whole number of units"),
            (vec![4, 0, 0, 0, 1, 2, 3, 4, 0xff], "not UTF-8"),
        ] {
            let error = CharMap::new(&bytes).map(|_| ()).unwrap_err();
            assert!(error.0.contains(expected), "{error}");
        }
        let good = compile(&[("é", "e"), ("ab", "X")]);
        let mut random = 7u64;
        for _ in 0..2000 {
            let mut bad = good.clone();
            for _ in 0..8 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = 4 + (random >> 33) as usize % (good.len() - 4);
                bad[at] = (random >> 20) as u8;
            }
            if let Ok(map) = CharMap::new(&bad) {
                replaced(&map, "é ab aé 漢");
            }
        }
    }
}
