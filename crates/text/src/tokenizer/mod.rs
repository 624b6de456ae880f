//! Text to ids and back.
//!
//! A text is first searched for tokens that stand in it as they are (`special`); what lies between
//! is cut into words (`split`, by the table in `pretokenizers`) and each word's neighbours are
//! joined by rank (`bpe`) or the whole by score (`spm`), both through `merge`. A Hugging Face
//! `tokenizer.json` keeps its own pipeline for encoding (`json`); its tokens' bytes are derived
//! once, so that everything after encoding is the same for both.

mod bpe;
mod build;
#[cfg(test)]
mod build_tests;
mod byte_level;
mod encoder;
mod ends;
mod error;
mod fitted;
mod json;
#[cfg(test)]
mod json_tests;
mod merge;
mod pipeline;
mod pretokenizers;
mod special;
mod split;
mod spm;
mod strings;
#[cfg(test)]
pub(crate) mod tests;
mod typed;

pub use error::TokenizerError;

use crate::TokenKind;
use encoder::Encoder;
use merge::Merger;
use special::Fragment;
use std::borrow::Cow;
use std::sync::OnceLock;
use strings::Strings;
use typed::Controls;

/// Longest text that is encoded at once, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 26;

/// Bytes of a character: what the unknown token stands for.
const CHARACTER_BYTES_MAX: usize = 4;
/// How many times shorter the pipeline of a `tokenizer.json` may make a text: Unicode's composition of characters
/// turns nine bytes into three, and white space may be taken away.
const SHORTENED_MAX: usize = 4;

/// Text to ids and back.
pub struct Tokenizer {
    /// Token texts, as in the vocabulary; indexed.
    pieces: Strings,
    /// What the tokens stand for in running text.
    bytes: Strings,
    /// One for each token.
    kinds: Vec<TokenKind>,
    encoder: Encoder,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Whether texts begin with a space that encoding added and decoding takes away.
    adds_first_space: bool,
    /// Sorted.
    ends: Vec<u32>,
    warnings: Vec<String>,
    /// Made when first asked for.
    controls: OnceLock<Controls>,
    /// Bytes of the longest token, likewise.
    longest: OnceLock<usize>,
}

impl Tokenizer {
    /// Ids of `text`. With `special`, texts of special tokens become those tokens; without, they
    /// are ordinary text (what a user typed must not become a control token). Nothing is added.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len().min(TEXT_BYTES_MAX) / 4 + 2);
        self.encode_into(text, special, &mut ids)?;
        Ok(ids)
    }

    /// The same with `bos` and `eos` added as the vocabulary asks, never doubled.
    pub fn encode_prompt(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        self.prompt(text.len(), |ids| self.encode_into(text, special, ids))
    }

    /// Ids of text in the middle of a text: nothing is put before it, and no text becomes a control
    /// token. As [`Tokenizer::encodes_running`] says.
    pub(crate) fn encode_running(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        match &self.encoder {
            Encoder::Spm { specials, spm } => {
                self.encode_spm((specials, spm), text, (false, false), &mut ids)?;
            }
            _ => self.encode_into(text, false, &mut ids)?,
        }
        Ok(ids)
    }

    /// Whether text in the middle of a text can be encoded as it would be there.
    pub(crate) fn encodes_running(&self) -> bool {
        !(matches!(self.encoder, Encoder::Json(_)) && self.adds_first_space)
    }

    /// A typed string, made ready for a chat template: whatever control tokens' texts stand in it
    /// will be ordinary text for [`encode_rendered`](Self::encode_rendered).
    pub fn mark_typed<'t>(&self, typed: &'t str) -> Cow<'t, str> {
        self.controls().mark(typed)
    }

    /// Ids of what a chat template rendered: its own control tokens, and as ordinary text those in
    /// the strings that were [marked](Self::mark_typed). `bos` and `eos` as in
    /// [`encode_prompt`](Self::encode_prompt).
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.prompt(text.len(), |ids| {
            self.controls()
                .pieces(text, |piece, special| self.encode_into(piece, special, ids))
        })
    }

    /// The same where the text goes on from one that is encoded already: nothing is added.
    pub fn encode_rendered_further(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.controls().pieces(text, |piece, special| {
            self.encode_into(piece, special, &mut ids)
        })?;
        Ok(ids)
    }

    fn controls(&self) -> &Controls {
        self.controls.get_or_init(|| {
            let ids = (0..self.vocab_size() as u32).filter(|&id| self.is_control(id));
            Controls::new(ids.filter_map(|id| self.piece(id)))
        })
    }

    fn prompt(
        &self,
        bytes: usize,
        encode: impl FnOnce(&mut Vec<u32>) -> Result<(), TokenizerError>,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(bytes.min(TEXT_BYTES_MAX) / 4 + 4);
        let bos = self.bos.filter(|_| self.add_bos);
        ids.extend(bos);
        encode(&mut ids)?;
        if bos.is_some() && ids.get(1).copied() == bos {
            ids.remove(0);
        }
        if let Some(eos) = self
            .eos
            .filter(|eos| self.add_eos && ids.last() != Some(eos))
        {
            ids.push(eos);
        }
        Ok(ids)
    }

    /// The bytes a token stands for in running text (control tokens: none). `None`: no such id.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id)
    }

    /// The token's own text, as in the vocabulary (for logprobs of control tokens, `inspect`).
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.pieces
            .get(id)
            .map(|piece| std::str::from_utf8(piece).expect("pieces are made of strings"))
    }

    /// The id of exactly this vocabulary entry.
    pub fn id_of(&self, piece: &str) -> Option<u32> {
        self.pieces.find(piece.as_bytes())
    }

    /// Whether the token is a control token (shown to nobody); the unknown token is one.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(
            self.kinds.get(id as usize),
            Some(TokenKind::Control | TokenKind::Unknown)
        )
    }

    /// Entries in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of text that become one token at most, so that a text of more than `n` times as many cannot fit in `n`
    /// tokens: those of the longest token, and more where the text may be shortened before it is cut.
    pub fn bytes_per_token_max(&self) -> usize {
        let of = |id| {
            self.pieces
                .get(id)
                .map_or(0, <[u8]>::len)
                .max(self.bytes.get(id).map_or(0, <[u8]>::len))
        };
        let longest = || (0..self.pieces.len() as u32).map(of).max().unwrap_or(0);
        let longest = (*self.longest.get_or_init(longest)).max(CHARACTER_BYTES_MAX);
        match &self.encoder {
            Encoder::Json(_) => longest.saturating_mul(SHORTENED_MAX),
            Encoder::Bpe { .. } | Encoder::Spm { .. } => longest,
        }
    }

    /// Begin of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End of sequence.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Every token that ends a generation: eos, eot and the well-known end-of-turn names. Sorted.
    pub fn eos_ids(&self) -> &[u32] {
        &self.ends
    }

    /// What is doubtful about the vocabulary, to be shown to the operator once.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the first space of a text was put there by encoding.
    pub(crate) fn adds_first_space(&self) -> bool {
        self.adds_first_space
    }

    fn encode_into(
        &self,
        text: &str,
        special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if text.len() > TEXT_BYTES_MAX {
            let bytes = text.len();
            return Err(TokenizerError(format!(
                "a text of {bytes} bytes; at most {TEXT_BYTES_MAX} are encoded at once"
            )));
        }
        match &self.encoder {
            Encoder::Bpe {
                specials,
                splitter,
                bpe,
            } => {
                let mut merger = Merger::default();
                specials.split(text, special, |fragment| match fragment {
                    Fragment::Token(id) => {
                        ids.push(id);
                        Ok(())
                    }
                    Fragment::Text(text) => splitter.split(text, &mut |word| {
                        bpe.encode_word(word.as_bytes(), &self.bytes, &mut merger, ids)
                    }),
                })
            }
            Encoder::Spm { specials, spm } => {
                self.encode_spm((specials, spm), text, (special, true), ids)
            }
            Encoder::Json(pipeline) => pipeline.encode(text, special, self.pieces.len(), ids),
        }
    }

    fn encode_spm(
        &self,
        (specials, spm): (&special::Specials, &spm::Spm),
        text: &str,
        (special, mut at_start): (bool, bool),
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut merger = Merger::default();
        let mut escaped = String::new();
        specials.split(text, special, |fragment| {
            let text = match fragment {
                Fragment::Token(id) => {
                    ids.push(id);
                    at_start = true;
                    return Ok(());
                }
                Fragment::Text(text) => text,
            };
            escaped.clear();
            if self.adds_first_space && at_start {
                escaped.push(spm::SPACE);
            }
            at_start = false;
            escaped.extend(
                text.chars()
                    .map(|written| if written == ' ' { spm::SPACE } else { written }),
            );
            spm.encode(&escaped, &self.pieces, &mut merger, ids)
        })
    }
}
