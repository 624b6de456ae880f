//! Ids of a vocabulary for text that another server has decoded: their bytes are that text, however it was cut.

use crate::Tokenizer;
use std::sync::Arc;

/// Bytes of the longest token that is used; longer ones are left out.
const COVER_BYTES_MAX: usize = 32;

/// Covers text with tokens of a vocabulary.
///
/// Each token is the longest one that the rest of the text begins with. So the bytes of all ids are exactly the text, and a
/// [`crate::Decoder`] returns it. The ids are not those that a model has sampled, nor those of [`Tokenizer::encode`].
pub struct TextCover {
    tokenizer: Arc<Tokenizer>,
    /// Ids of tokens of 1 to [`COVER_BYTES_MAX`] bytes, sorted by their bytes; no control and no end-of-sequence tokens.
    sorted: Vec<u32>,
}

impl TextCover {
    /// The cover of a vocabulary that has a token for each byte that text can have.
    ///
    /// # Errors
    /// The byte without a token, so that some texts could not be covered.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, u8> {
        let is_used = |id: &u32| {
            let bytes = tokenizer.bytes(*id).unwrap_or_default();
            let is_short = (1..=COVER_BYTES_MAX).contains(&bytes.len());
            is_short && !tokenizer.is_control(*id) && !tokenizer.eos_ids().contains(id)
        };
        let all = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let mut sorted: Vec<u32> = all.filter(is_used).collect();
        sorted.sort_by_key(|&id| (tokenizer.bytes(id), id));
        sorted.dedup_by_key(|id| tokenizer.bytes(*id));
        let cover = Self { tokenizer, sorted };
        // Bytes that UTF-8 does not have are left out.
        let bytes = (0..=0xBF).chain(0xC2..=0xF4);
        match bytes
            .into_iter()
            .find(|byte| cover.find(&[*byte]).is_none())
        {
            Some(byte) => Err(byte),
            None => Ok(cover),
        }
    }

    /// Appends the ids of a piece of text. `at_text_start`: the piece begins a text where a [`crate::Decoder`] drops a space.
    pub fn push_ids(&self, text: &str, at_text_start: bool, into: &mut Vec<u32>) {
        let is_dropped = at_text_start && self.tokenizer.adds_first_space();
        if is_dropped && text.starts_with(' ') {
            into.extend(self.find(b" "));
        }
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let longest = rest.len().min(COVER_BYTES_MAX);
            let found = (1..=longest)
                .rev()
                .find_map(|len| Some((self.find(&rest[..len])?, len)));
            // Every byte of UTF-8 has a token.
            let Some((id, len)) = found else { return };
            into.push(id);
            rest = &rest[len..];
        }
    }

    /// The token of exactly these bytes.
    fn find(&self, bytes: &[u8]) -> Option<u32> {
        let of = |id: &u32| self.tokenizer.bytes(*id).unwrap_or_default();
        let found = self.sorted.binary_search_by(|id| of(id).cmp(bytes));
        found.ok().map(|place| self.sorted[place])
    }
}

#[cfg(test)]
mod tests {
    //! Promise (Text): token ids that are found to cover a text decode to exactly this text, for every cut.

    use super::*;
    use crate::Decoder;
    use crate::tokenizer::tests::{bpe_spec, spm_spec};
    use proptest::prelude::*;

    fn tokenizers() -> [Arc<Tokenizer>; 2] {
        [spm_spec(), bpe_spec()].map(|spec| Arc::new(Tokenizer::from_vocab(spec).unwrap()))
    }

    fn decoded(tokenizer: &Arc<Tokenizer>, pieces: &[&str], at_text_start: bool) -> String {
        let cover = TextCover::new(Arc::clone(tokenizer)).unwrap();
        let (mut ids, mut is_start) = (Vec::new(), at_text_start);
        for piece in pieces {
            cover.push_ids(piece, is_start, &mut ids);
            is_start &= piece.is_empty();
        }
        let ends = tokenizer.eos_ids();
        assert!(
            ids.iter()
                .all(|id| !tokenizer.is_control(*id) && !ends.contains(id))
        );
        let (mut decoder, mut text) = (
            Decoder::new(Arc::clone(tokenizer), at_text_start),
            String::new(),
        );
        ids.iter().for_each(|id| decoder.push(*id, &mut text));
        decoder.finish(&mut text);
        text
    }

    /// Text with much of what tokens are made of.
    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just(" ".to_owned()),
            Just("hello".to_owned()),
            Just("</s>".to_owned()),
            Just("▁".to_owned()),
            Just("<0xC3>".to_owned()),
            Just("é🦙".to_owned()),
            any::<String>(),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn text_of_the_ids_is_the_text_however_it_is_cut(
            text in any_text(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), at_text_start: bool,
        ) {
            let chars: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| chars[cut.index(chars.len())]).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            for tokenizer in tokenizers() {
                prop_assert_eq!(decoded(&tokenizer, &pieces, at_text_start), &*text);
            }
        }
    }

    #[test]
    fn longest_token_is_used() {
        let [_, bytes] = tokenizers();
        let cover = TextCover::new(Arc::clone(&bytes)).unwrap();
        let mut ids = Vec::new();
        cover.push_ids("hello wor", false, &mut ids);
        let texts: Vec<_> = ids.iter().filter_map(|id| bytes.bytes(*id)).collect();
        assert_eq!(texts, [&b"hello"[..], b" wor"]);
    }

    #[test]
    fn vocabulary_without_a_byte_is_refused() {
        let mut spec = spm_spec();
        let at = spec
            .tokens
            .iter()
            .position(|token| token == "<0xE2>")
            .unwrap();
        spec.kinds[at] = crate::TokenKind::Control;
        let tokenizer = Arc::new(Tokenizer::from_vocab(spec).unwrap());
        assert_eq!(TextCover::new(tokenizer).err(), Some(0xE2));
    }
}
