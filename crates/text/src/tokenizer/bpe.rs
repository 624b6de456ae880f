//! Byte-level BPE: words to ids by merge rank.

use super::byte_level;
use super::error::TokenizerError;
use super::merge_loop::{Join, Merger, NONE};
use super::merges::{Merge, Merges};
use super::string_arena::StringArena;
use crate::VocabSpec;

/// Longest word that is merged in arrays on the stack, in bytes; longer words use the heap.
const SHORT_WORD_BYTES: usize = 32;

/// Merges, and the tokens of single bytes.
pub(crate) struct Bpe {
    merges: Merges,
    byte_ids: [u32; 256],
    unknown: Option<u32>,
    /// By id: whether a word equal to this token becomes the token directly. True where merging gives the
    /// same token, or where the vocabulary ignores merges for whole words.
    whole: Vec<bool>,
}

impl Bpe {
    /// `bytes` must be indexed. Also returns the number of omitted merges: those that would create a control
    /// token from plain text.
    pub(crate) fn new(
        spec: &VocabSpec,
        pieces: &StringArena,
        bytes: &StringArena,
        ignore_merges: bool,
    ) -> Result<(Self, usize), TokenizerError> {
        let byte_ids = std::array::from_fn(|byte| {
            let written = byte_level::char_of(byte as u8);
            pieces
                .find(written.encode_utf8(&mut [0; 4]).as_bytes())
                .unwrap_or(NONE)
        });
        let whole = vec![false; bytes.len()];
        let (merges, left_out) = Merges::read(spec, pieces)?;
        let mut bpe = Self {
            merges,
            byte_ids,
            unknown: spec.unknown,
            whole,
        };
        bpe.whole = (0..bytes.len() as u32)
            .map(|id| {
                let word = bytes.get(id).unwrap_or_default();
                bytes.find(word) == Some(id) && (ignore_merges || bpe.makes(word, id))
            })
            .collect();
        Ok((bpe, left_out))
    }

    /// Appends the ids of one word.
    pub(crate) fn encode_word(
        &self,
        word: &[u8],
        bytes: &StringArena,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if let Some(id) = bytes.find(word).filter(|id| self.whole[*id as usize]) {
            out.push(id);
            Ok(())
        } else if word.len() <= SHORT_WORD_BYTES {
            self.merge_short(word, out)
        } else {
            self.merge_long(word, merger, out)
        }
    }

    /// Whether merging `word` gives exactly `id`.
    fn makes(&self, word: &[u8], id: u32) -> bool {
        let mut ids = Vec::new();
        word.len() <= SHORT_WORD_BYTES && self.merge_short(word, &mut ids).is_ok() && ids == [id]
    }

    /// Merges in quadratic time, for at most `SHORT_WORD_BYTES` bytes.
    fn merge_short(&self, word: &[u8], out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        const NEVER: Merge = Merge {
            rank: NONE,
            id: NONE,
        };
        let mut ids = [NONE; SHORT_WORD_BYTES];
        // `merges[i]` would join `ids[i]` and `ids[i + 1]`.
        let mut merges = [NEVER; SHORT_WORD_BYTES];
        let mut len = word.len();
        for (at, byte) in word.iter().enumerate() {
            ids[at] = self.byte_ids[usize::from(*byte)];
        }
        for at in 1..len {
            merges[at - 1] = self.merges.of(ids[at - 1], ids[at]).unwrap_or(NEVER);
        }
        while len > 1 {
            let ranks = merges[..len - 1].iter().map(|merge| merge.rank).enumerate();
            let Some((at, rank)) = ranks.min_by_key(|(_, rank)| *rank) else {
                break;
            };
            if rank == NONE {
                break;
            }
            ids[at] = merges[at].id;
            ids.copy_within(at + 2..len, at + 1);
            merges.copy_within(at + 1..len, at);
            len -= 1;
            merges[len - 1] = NEVER;
            if at + 1 < len {
                merges[at] = self.merges.of(ids[at], ids[at + 1]).unwrap_or(NEVER);
            }
            if at > 0 {
                merges[at - 1] = self.merges.of(ids[at - 1], ids[at]).unwrap_or(NEVER);
            }
        }
        ids[..len]
            .iter()
            .try_for_each(|id| self.emit(*id, word, out))
    }

    fn merge_long(
        &self,
        word: &[u8],
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        merger.clear();
        for byte in word {
            merger.push(1, self.byte_ids[usize::from(*byte)]);
        }
        merger.run(|left, right| {
            self.merges.of(left.id, right.id).map(|merge| Join {
                cost: merge.rank,
                id: merge.id,
            })
        });
        merger
            .symbols()
            .try_for_each(|symbol| self.emit(symbol.id, word, out))
    }

    /// `id` is `NONE` for a byte of `word` without a token.
    fn emit(&self, id: u32, word: &[u8], out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        let id = if id == NONE { self.unknown } else { Some(id) };
        out.push(id.ok_or_else(|| {
            let missing = word
                .iter()
                .find(|byte| self.byte_ids[usize::from(**byte)] == NONE);
            TokenizerError(format!(
                "no token for the byte {missing:02X?} and no unknown token"
            ))
        })?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::tests::bpe_spec;
    use proptest::prelude::*;

    fn small() -> Bpe {
        let spec = bpe_spec();
        let mut pieces = StringArena::with_capacity(0, 0);
        spec.tokens
            .iter()
            .for_each(|token| pieces.push(token.as_bytes()));
        pieces.index(|_| true);
        let bytes = StringArena::with_capacity(0, 0);
        Bpe::new(&spec, &pieces, &bytes, false).unwrap().0
    }

    proptest! {
        #[test]
        fn heap_and_array_merges_are_equal(word in "[helo wrd]{1,32}") {
            let bpe = small();
            let (mut short, mut long) = (Vec::new(), Vec::new());
            bpe.merge_short(word.as_bytes(), &mut short).unwrap();
            bpe.merge_long(word.as_bytes(), &mut Merger::default(), &mut long).unwrap();
            prop_assert_eq!(short, long);
        }
    }
}
