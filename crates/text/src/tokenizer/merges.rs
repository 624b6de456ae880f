//! Merges of BPE by the pair that they join.

use super::error::TokenizerError;
use super::string_arena::{StringArena, mix};
use crate::{TokenKind, VocabSpec};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The merges of a vocabulary.
#[derive(Default)]
pub(crate) struct Merges(HashMap<u64, Merge, BuildHasherDefault<PairHasher>>);

/// A merge of two tokens.
#[derive(Clone, Copy)]
pub(crate) struct Merge {
    /// Merges of low rank come first.
    pub(crate) rank: u32,
    /// The resulting token.
    pub(crate) id: u32,
}

impl Merges {
    /// Reads a vocabulary's merges. Also returns the number of omitted merges: those that would create a control token
    /// from plain text.
    pub(crate) fn read(
        spec: &VocabSpec,
        pieces: &StringArena,
    ) -> Result<(Self, usize), TokenizerError> {
        let (mut merges, mut left_out) = (Self::default(), 0);
        merges.0.reserve(spec.merges.len());
        let mut joined = String::new();
        for (rank, merge) in spec.merges.iter().enumerate() {
            // From index 1: a left side may begin with the separator.
            let cut = merge
                .char_indices()
                .skip(1)
                .find(|(_, written)| *written == ' ');
            let Some((cut, _)) = cut else {
                return Err(TokenizerError(format!(
                    "merge {rank} is not two tokens: {merge:?}"
                )));
            };
            let (left, right) = (&merge[..cut], &merge[cut + 1..]);
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let id_of = |text: &str| {
                let missing = || {
                    TokenizerError(format!(
                        "merge {rank} ({merge:?}) needs the token {text:?}, which is not in the vocabulary"
                    ))
                };
                pieces.find(text.as_bytes()).ok_or_else(missing)
            };
            let (left, right, id) = (id_of(left)?, id_of(right)?, id_of(&joined)?);
            match spec.kinds.get(id as usize) {
                Some(TokenKind::Control | TokenKind::Unknown) => left_out += 1,
                // The first rank of a duplicate merge counts.
                _ => {
                    let merge = Merge {
                        rank: rank as u32,
                        id,
                    };
                    merges.0.entry(pair(left, right)).or_insert(merge);
                }
            }
        }
        Ok((merges, left_out))
    }

    /// The merge of these tokens, if there is one.
    pub(crate) fn of(&self, left: u32, right: u32) -> Option<Merge> {
        self.0.get(&pair(left, right)).copied()
    }
}

fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Hashes one pair of ids.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write_u64(&mut self, pair: u64) {
        self.0 = mix(pair);
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.0 = mix(self.0 ^ u64::from(*byte)));
    }
}
