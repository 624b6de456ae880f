//! BPE by merge rank: over bytes, and over characters.
//!
//! The alphabet of byte-level BPE writes each byte as one printable character.
//! Printable Latin-1 characters represent themselves; the other 68 bytes, in order, are U+0100..=U+0143
//! (GPT-2).
//!
//! BPE with merges over characters, as in Gemma 4: a text is one word, spaces are written `▁`, and characters without
//! a token become byte tokens.

use super::error::TokenizerError;
use super::merge_loop::{Join, Merger, Merges, NONE};
use super::spm::{ByteTokens, SPACE, has_inner_space, words};
use super::string_arena::StringArena;
use crate::{TokenKind, VocabSpec};

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
            let written = char_of(byte as u8);
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
        const NEVER: Join = Join {
            cost: NONE,
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
            let ranks = merges[..len - 1].iter().map(|merge| merge.cost).enumerate();
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
        merger.run(|left, right| self.merges.of(left.id, right.id));
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

/// The character for a byte.
pub(crate) fn char_of(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        0..=0x20 => after_latin(u32::from(byte)),
        0x7F..=0xA0 => after_latin(0x21 + u32::from(byte - 0x7F)),
        0xAD => after_latin(0x43),
    }
}

/// The byte for a character.
fn byte_of(written: char) -> Option<u8> {
    match written as u32 {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The bytes of a token's text; `None` for a text outside the alphabet.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

fn after_latin(index: u32) -> char {
    char::from_u32(0x100 + index).expect("under U+0144")
}

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
        merger.run(|left, right| self.merges.of(left.id, right.id));
        self.bytes.push_symbols(word, merger, out)
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

    #[test]
    fn byte_characters_are_unique() {
        let mut seen = std::collections::BTreeSet::new();
        for byte in 0..=255 {
            assert!(seen.insert(char_of(byte)));
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
        assert_eq!(
            seen.iter()
                .filter(|written| byte_of(**written).is_some())
                .count(),
            256
        );
    }

    #[test]
    fn byte_characters_equal_gpt2() {
        assert_eq!(char_of(b' '), 'Ġ');
        assert_eq!(char_of(b'\n'), 'Ċ');
        assert_eq!(decode("Ġé").as_deref(), Some(&b" \xE9"[..]));
        assert_eq!(decode("日"), None);
    }
}
