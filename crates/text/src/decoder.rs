//! Incremental decoding of token ids to text, and the ids that cover a text which another server has decoded.

use crate::Tokenizer;
use std::sync::Arc;

/// Incremental detokenizer: O(1) per token, never splits UTF-8, never retracts text.
///
/// The output equals `String::from_utf8_lossy` of all bytes, however tokens divide the bytes. Control tokens
/// have no text; a character may continue after a control token.
pub struct Decoder {
    tokenizer: Arc<Tokenizer>,
    at_text_start: bool,
    /// Whether the next byte starts the text, where a space that encoding added is dropped.
    drops_space: bool,
    /// Control tokens whose text is emitted; sorted.
    shown: Arc<[u32]>,
    held: PartialCharacter,
}

/// Prefix of a character: valid so far, incomplete.
#[derive(Default)]
struct PartialCharacter {
    /// `bytes[..len]` is held; the fourth byte is for the byte that completes the character.
    bytes: [u8; 4],
    len: usize,
}

impl Decoder {
    /// A decoder at the start of an answer. `at_text_start`: whether the first token starts a text, as after
    /// an empty prompt (SPM then drops the space that encoding added); false in the middle of a text.
    pub fn new(tokenizer: Arc<Tokenizer>, at_text_start: bool) -> Self {
        let drops_space = at_text_start && tokenizer.adds_first_space();
        Self {
            tokenizer,
            at_text_start,
            drops_space,
            shown: Arc::default(),
            held: PartialCharacter::default(),
        }
    }

    /// This decoder with the texts of these control tokens (sorted) emitted. An incomplete character ends at
    /// such a token.
    #[must_use]
    pub fn showing(self, shown: Arc<[u32]>) -> Self {
        Self { shown, ..self }
    }

    /// Appends the text that became final with this token. Invalid UTF-8 becomes U+FFFD, as with
    /// `String::from_utf8_lossy` over the whole text. An unknown id has no text.
    pub fn push(&mut self, id: u32, out: &mut String) {
        if !self.shown.is_empty() && self.shown.binary_search(&id).is_ok() {
            self.held.give_up(out);
            return out.push_str(self.tokenizer.piece(id).unwrap_or_default());
        }
        let mut bytes = self.tokenizer.bytes(id).unwrap_or_default();
        if self.drops_space && !bytes.is_empty() {
            self.drops_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.held.push(bytes, out);
    }

    /// Appends the text of an incomplete character (U+FFFD).
    pub fn finish(&mut self, out: &mut String) {
        self.held.give_up(out);
    }

    /// Restarts the decoder and keeps the buffers.
    pub fn reset(&mut self) {
        self.held = PartialCharacter::default();
        self.drops_space = self.at_text_start && self.tokenizer.adds_first_space();
    }
}

impl PartialCharacter {
    fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        while self.len > 0 {
            let Some((&next, rest)) = bytes.split_first() else {
                return;
            };
            self.bytes[self.len] = next;
            match std::str::from_utf8(&self.bytes[..=self.len]) {
                Ok(character) => {
                    out.push_str(character);
                    self.len = 0;
                    bytes = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.len += 1;
                    bytes = rest;
                }
                // The held bytes cannot become a character; `next` may begin one.
                Err(_) => self.give_up(out),
            }
        }
        for chunk in bytes.utf8_chunks() {
            // Bytes held from the previous chunk, which this chunk does not complete.
            self.give_up(out);
            out.push_str(chunk.valid());
            self.hold(chunk.invalid(), out);
        }
    }

    /// `invalid`: at most one malformed or incomplete character.
    fn hold(&mut self, invalid: &[u8], out: &mut String) {
        match std::str::from_utf8(invalid) {
            Err(error) if error.error_len().is_none() => {
                self.bytes[..invalid.len()].copy_from_slice(invalid);
                self.len = invalid.len();
            }
            Err(_) => out.push(char::REPLACEMENT_CHARACTER),
            Ok(_) => {}
        }
    }

    fn give_up(&mut self, out: &mut String) {
        if self.len > 0 {
            out.push(char::REPLACEMENT_CHARACTER);
            self.len = 0;
        }
    }
}

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
    use super::*;
    use crate::Decoder;
    use crate::tokenizer::tests::{bpe_spec, spm_spec};
    use proptest::prelude::*;

    fn decode_bytes(tokens: &[Vec<u8>]) -> String {
        let (mut held, mut out) = (PartialCharacter::default(), String::new());
        tokens.iter().for_each(|token| held.push(token, &mut out));
        held.give_up(&mut out);
        out
    }

    fn decode(ids: &[u32], at_text_start: bool) -> String {
        let tokenizer = Arc::new(Tokenizer::from_vocab(spm_spec()).unwrap());
        let (mut decoder, mut out) = (Decoder::new(tokenizer, at_text_start), String::new());
        for _ in 0..2 {
            out.clear();
            decoder.reset();
            ids.iter().for_each(|id| decoder.push(*id, &mut out));
            decoder.finish(&mut out);
        }
        out
    }

    /// Bytes that are mostly almost valid UTF-8; uniformly random bytes rarely are.
    fn likely_byte() -> impl Strategy<Value = u8> {
        prop_oneof![
            any::<u8>(),
            proptest::sample::select(
                &[
                    b'a', 0x80, 0xBF, 0xC3, 0xE0, 0xE2, 0x82, 0xAC, 0xED, 0xA0, 0xF0, 0x9F, 0xA6,
                    0x99, 0xF4, 0x90
                ][..]
            ),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn decoded_text_is_independent_of_chunks(tokens in proptest::collection::vec(proptest::collection::vec(likely_byte(), 0..6), 0..12)) {
            let whole = tokens.concat();
            prop_assert_eq!(decode_bytes(&tokens), String::from_utf8_lossy(&whole));
        }

        #[test]
        fn final_text_is_emitted_immediately(bytes in proptest::collection::vec(likely_byte(), 0..24)) {
            let (mut held, mut out) = (PartialCharacter::default(), String::new());
            for (at, byte) in bytes.iter().enumerate() {
                held.push(&[*byte], &mut out);
                // Final text: unchanged both by the end and by any next byte.
                let now = String::from_utf8_lossy(&bytes[..=at]).into_owned();
                let held_back = now.len() - out.len();
                prop_assert!(now.starts_with(&out));
                prop_assert!(held_back == 0 || held_back == 3 && now.ends_with(char::REPLACEMENT_CHARACTER));
                prop_assert_eq!(held_back > 0, held.len > 0);
            }
        }
    }

    #[test]
    fn invalid_utf8_becomes_replacement_characters() {
        for (label, tokens, expected) in [
            ("none", vec![], ""),
            (
                "cut character",
                vec![b"\xF0\x9F".to_vec(), b"\xA6".to_vec(), b"\x99!".to_vec()],
                "🦙!",
            ),
            ("unfinished", vec![b"a\xE2\x82".to_vec()], "a\u{FFFD}"),
            (
                "cut short",
                vec![b"\xE2\x82".to_vec(), b"a".to_vec()],
                "\u{FFFD}a",
            ),
            (
                "cut short by a beginning",
                vec![b"\xE2\x82\xC3".to_vec(), b"\xA9".to_vec()],
                "\u{FFFD}é",
            ),
            (
                "never valid",
                vec![b"\xFF".to_vec(), b"\x80".to_vec()],
                "\u{FFFD}\u{FFFD}",
            ),
            (
                "surrogate",
                vec![b"\xED".to_vec(), b"\xA0".to_vec(), b"\x80".to_vec()],
                "\u{FFFD}\u{FFFD}\u{FFFD}",
            ),
        ] {
            assert_eq!(decode_bytes(&tokens), expected, "{label}");
        }
    }

    #[test]
    fn control_tokens_are_not_decoded() {
        let tokenizer = Tokenizer::from_vocab(spm_spec()).unwrap();
        let id = |piece: &str| tokenizer.id_of(piece).unwrap();
        let (hello, bos, low, high) = (id("▁hello"), id("<s>"), id("<0xC3>"), id("<0xA9>"));
        for (label, ids, at_text_start, expected) in [
            (
                "the space encoding added",
                vec![hello, hello],
                true,
                "hello hello",
            ),
            ("in the middle", vec![hello, hello], false, " hello hello"),
            ("after control", vec![bos, hello], true, "hello"),
            (
                "control gives nothing",
                vec![hello, bos, hello],
                true,
                "hello hello",
            ),
            ("bytes", vec![low, high], true, "é"),
            (
                "a character goes on after control",
                vec![low, bos, high],
                true,
                "é",
            ),
            ("unfinished", vec![hello, low], true, "hello\u{FFFD}"),
            ("no such id", vec![hello, 1_000_000], true, "hello"),
        ] {
            assert_eq!(decode(&ids, at_text_start), expected, "{label}");
        }
    }

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
