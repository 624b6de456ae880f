//! Tokenizer: text to ids and back.
//!
//! Encoding first finds special tokens in the text (`special_tokens`). The text between special tokens is divided
//! into words (`word_splitter`), whose neighbors are joined by rank (`bpe`), or
//! joined as a whole by score (`spm`) or by rank (`bpe`); all use `merge_loop`. BERT's words become their longest tokens
//! (`word_piece`), and `unigram` takes the likeliest tokens of a whole text. A Hugging Face `tokenizer.json` is encoded by its
//! own pipeline (`from_tokenizer_json`, `json_pipeline`). The bytes of the tokens are computed once at construction, so decoding
//! is equal for all vocabularies.

mod bpe;
#[cfg(test)]
mod char_bpe_tests;
mod error;
mod from_tokenizer_json;
#[cfg(test)]
mod from_tokenizer_json_tests;
mod from_vocab;
#[cfg(test)]
mod from_vocab_tests;
mod json_pipeline;
mod merge_loop;
mod special_tokens;
mod spm;
mod string_arena;
#[cfg(test)]
pub(crate) mod tests;
mod unigram;
#[cfg(test)]
mod unigram_tests;
mod word_piece;
#[cfg(test)]
mod word_piece_tests;
mod word_splitter;

pub use error::TokenizerError;
pub(crate) use special_tokens::{CLOSE as MARK_CLOSE, OPEN as MARK_OPEN, is_mark};
pub use special_tokens::{InfillTokens, template_texts};

use crate::{InfillIds, TokenKind};
use bpe::{Bpe, CharBpe};
use json_pipeline::JsonPipeline;
use merge_loop::Merger;
use special_tokens::{ControlTexts, Fragment, SpecialTokens};
use spm::Spm;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;
use string_arena::StringArena;
use unigram::Unigram;
use word_piece::WordPiece;
use word_splitter::Splitter;

/// Longest text that is encoded at once, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 26;

/// Bytes of a character: the unknown token represents one character.
const CHARACTER_BYTES_MAX: usize = 4;
/// Factor by which the pipeline of a `tokenizer.json` may shorten a text: Unicode composition turns nine
/// bytes into three, and white space may be removed.
const SHORTENED_MAX: usize = 4;

/// Converts text to ids and ids to bytes.
pub struct Tokenizer {
    /// Token texts as in the vocabulary; indexed.
    pieces: StringArena,
    /// Bytes of the tokens in running text.
    bytes: StringArena,
    /// Kinds of the tokens, by id.
    kinds: Vec<TokenKind>,
    encoder: Encoder,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    /// The token after a prompt.
    prompt_end: Option<u32>,
    /// Whether encoding adds a space at the beginning of a text, which decoding removes.
    adds_first_space: bool,
    /// Sorted ids.
    ends: Vec<u32>,
    infill: InfillIds,
    warnings: Vec<String>,
    controls: UserControls,
    /// Bytes of the longest token; computed on first use.
    longest: OnceLock<usize>,
}

impl Tokenizer {
    /// Encodes `text` without `bos` and `eos`. With `special_tokens`, texts of special tokens become those tokens;
    /// without, such texts are ordinary text (user input must not become a control token).
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len().min(TEXT_BYTES_MAX) / 4 + 2);
        self.encode_into(text, special, &mut ids)?;
        Ok(ids)
    }

    /// Encodes `text` with `bos` and `eos` as the vocabulary requires, never doubled.
    pub fn encode_prompt(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        self.prompt(text.len(), |ids| self.encode_into(text, special, ids))
    }

    /// Encodes text from the middle of a text: adds no space, and no text becomes a control token. See
    /// [`Tokenizer::encodes_fragments`].
    pub(crate) fn encode_fragment(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.encode_part(text, (false, false), &mut ids)?;
        Ok(ids)
    }

    /// Whether [`Tokenizer::encode_fragment`] encodes text as within a longer text.
    pub(crate) fn encodes_fragments(&self) -> bool {
        match &self.encoder {
            Encoder::Json(_) => !self.adds_first_space,
            Encoder::Vocab(_, algorithm) => !algorithm.takes_whole_texts(),
        }
    }

    /// Escapes the texts of control tokens in user input, so that [`encode_rendered`](Self::encode_rendered)
    /// encodes them as ordinary text after a chat template has inserted the input.
    pub fn escape_control_text<'t>(&self, typed: &'t str) -> Cow<'t, str> {
        self.controls().mark(typed)
    }

    /// Encodes a rendered chat template: control tokens of the template become tokens,
    /// [escaped](Self::escape_control_text) ones ordinary text. Adds `bos` and `eos` like
    /// [`encode_prompt`](Self::encode_prompt).
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.prompt(text.len(), |ids| {
            self.controls()
                .pieces(text, |piece, special| self.encode_into(piece, special, ids))
        })
    }

    /// Encodes rendered text that continues an already encoded text: adds neither `bos` nor `eos`.
    pub fn encode_rendered_continuation(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 4 + 2);
        self.controls().pieces(text, |piece, special| {
            self.encode_into(piece, special, &mut ids)
        })?;
        Ok(ids)
    }

    /// Encodes a rendered text with runs of ids between its segments, as [`encode_rendered`](Self::encode_rendered) would
    /// if each run was written as control tokens. Returns the ids, and the place of each run.
    ///
    /// # Errors
    /// A segment is too long.
    pub fn encode_rendered_around(
        &self,
        segments: &[&str],
        runs: &[IdRun],
    ) -> Result<(Vec<u32>, Vec<Range<usize>>), TokenizerError> {
        let bytes: usize = segments.iter().map(|segment| segment.len()).sum();
        let length: usize = runs.iter().map(|run| run.length).sum();
        let mut ids = Vec::with_capacity(bytes.min(TEXT_BYTES_MAX) / 4 + length + 4);
        let bos = self.bos.filter(|_| self.add_bos);
        ids.extend(bos);
        let mut places = Vec::with_capacity(runs.len());
        for (i, segment) in segments.iter().enumerate() {
            self.controls().pieces(segment, |piece, special| {
                self.encode_into(piece, special, &mut ids)
            })?;
            if i == 0 && bos.is_some() && ids.get(1).copied() == bos {
                ids.remove(0);
            }
            if let Some(run) = runs.get(i) {
                let start = ids.len();
                ids.extend(std::iter::repeat_n(run.id, run.length));
                places.push(start..ids.len());
            }
        }
        ids.extend(self.prompt_end.filter(|end| ids.last() != Some(end)));
        Ok((ids, places))
    }

    /// This tokenizer with further texts that stay text in user input, also where the vocabulary has no control token of
    /// that text.
    #[must_use]
    pub fn reserving<'t>(mut self, texts: impl IntoIterator<Item = &'t str>) -> Self {
        let reserved = texts.into_iter().map(str::to_owned);
        self.controls.reserved.extend(reserved);
        self.controls.texts = OnceLock::new();
        self
    }

    fn controls(&self) -> &ControlTexts {
        self.controls.texts.get_or_init(|| {
            let ids = (0..self.vocab_size() as u32).filter(|&id| self.is_control(id));
            let reserved = self.controls.reserved.iter().map(String::as_str);
            ControlTexts::new(ids.filter_map(|id| self.piece(id)).chain(reserved))
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
        ids.extend(self.prompt_end.filter(|end| ids.last() != Some(end)));
        Ok(ids)
    }

    /// The ids of two texts as an encoder that compares them was trained: `[CLS] first [SEP] second [SEP]`, or in
    /// XLM-R's vocabularies `<s> first </s></s> second </s>`. `None` for other vocabularies.
    pub fn join_pair(&self, first: &[u32], second: &[u32]) -> Option<Vec<u32>> {
        let between = match &self.encoder {
            Encoder::Vocab(_, Algorithm::WordPiece(_)) => 1,
            Encoder::Vocab(_, Algorithm::Unigram(_)) => 2,
            Encoder::Json(pipeline) => pipeline.ends_in_pair()?,
            _ => return None,
        };
        let (start, end) = (self.bos?, self.eos?);
        let mut ids = Vec::with_capacity(first.len() + second.len() + between + 2);
        ids.push(start);
        ids.extend_from_slice(first);
        ids.extend(std::iter::repeat_n(end, between));
        ids.extend_from_slice(second);
        ids.push(end);
        Some(ids)
    }

    /// Truncates the ids of a prompt, whose last token stays if the vocabulary demands it at the end of a prompt.
    pub fn truncate_prompt(&self, ids: &mut Vec<u32>, tokens_max: usize) {
        if ids.len() <= tokens_max {
            return;
        }
        ids.truncate(tokens_max);
        if let (Some(end), Some(last)) = (self.prompt_end, ids.last_mut()) {
            *last = end;
        }
    }

    /// Bytes of a token in running text (none for control tokens). `None` for an unknown id.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id)
    }

    /// A token's text as in the vocabulary (for logprobs of control tokens, `inspect`).
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.pieces
            .get(id)
            .map(|piece| std::str::from_utf8(piece).expect("pieces are made of strings"))
    }

    /// The id of the token with exactly this text.
    pub fn id_of(&self, piece: &str) -> Option<u32> {
        self.pieces.find(piece.as_bytes())
    }

    /// Whether the token is a control token (not visible in text) or the unknown token.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(
            self.kinds.get(id as usize),
            Some(TokenKind::Control | TokenKind::Unknown)
        )
    }

    /// Whether a text is a token by itself: a control token, or one that the vocabulary's author defined apart from the words.
    pub fn is_defined(&self, text: &str) -> bool {
        let kind = self.id_of(text).and_then(|id| self.kinds.get(id as usize));
        matches!(kind, Some(TokenKind::Control | TokenKind::UserDefined))
    }

    /// Number of tokens in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Upper bound of the bytes of text per token, so that a text of more than `n` times as many bytes cannot
    /// fit in `n` tokens: the length of the longest token, times a factor where the pipeline may shorten the
    /// text. One unknown token of WordPiece or Unigram may be any text.
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
            Encoder::Json(pipeline) if pipeline.unknown_is_any_text() => TEXT_BYTES_MAX,
            Encoder::Json(_) => longest.saturating_mul(SHORTENED_MAX),
            Encoder::Vocab(_, algorithm) if algorithm.takes_whole_texts() => TEXT_BYTES_MAX,
            Encoder::Vocab(..) => longest,
        }
    }

    /// Begin-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Tokens that end a generation: `eos`, `eot` and well-known end-of-turn tokens. Sorted.
    pub fn eos_ids(&self) -> &[u32] {
        &self.ends
    }

    /// The tokens of fill-in-the-middle prompts.
    ///
    /// # Errors
    /// The names of the tokens that the vocabulary lacks.
    pub fn infill_tokens(&self) -> Result<InfillTokens, Vec<&'static str>> {
        InfillTokens::new(self.infill)
    }

    /// Doubtful properties of the vocabulary, for the operator's log.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether encoding adds the first space of a text.
    pub(crate) fn adds_first_space(&self) -> bool {
        self.adds_first_space
    }

    fn encode_into(
        &self,
        text: &str,
        special: bool,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        self.encode_part(text, (special, true), ids)
    }

    /// `at_start`: the text begins a text, or follows a special token.
    fn encode_part(
        &self,
        text: &str,
        (special, mut at_start): (bool, bool),
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        if text.len() > TEXT_BYTES_MAX {
            let bytes = text.len();
            return Err(TokenizerError(format!(
                "a text of {bytes} bytes; at most {TEXT_BYTES_MAX} are encoded at once"
            )));
        }
        let (specials, algorithm) = match &self.encoder {
            Encoder::Json(pipeline) => {
                return pipeline.encode(text, special, self.pieces.len(), ids);
            }
            Encoder::Vocab(specials, algorithm) => (specials, algorithm),
        };
        let (mut merger, mut escaped) = (Merger::default(), String::new());
        specials.split(text, special, |fragment| {
            let text = match fragment {
                Fragment::Token(id) => {
                    ids.push(id);
                    at_start = true;
                    return Ok(());
                }
                Fragment::Text(text) => text,
            };
            let adds_space = self.adds_first_space && std::mem::take(&mut at_start);
            match algorithm {
                Algorithm::Bpe(splitter, bpe) => splitter.split(text, &mut |word| {
                    bpe.encode_word(word.as_bytes(), &self.bytes, &mut merger, ids)
                }),
                Algorithm::CharBpe(bpe) => bpe.encode(text, &self.pieces, &mut merger, ids),
                Algorithm::Spm(spm) => {
                    escaped.clear();
                    escaped.extend(adds_space.then_some(spm::SPACE));
                    let written = text.chars();
                    escaped.extend(written.map(|c| if c == ' ' { spm::SPACE } else { c }));
                    spm.encode(&escaped, &self.pieces, &mut merger, ids)
                }
                Algorithm::Unigram(unigram) => unigram.encode(text, &self.pieces, ids),
                Algorithm::WordPiece(word_piece) => word_piece.encode(text, &self.pieces, ids),
            }
        })
    }
}

/// Texts that are control texts in user input.
#[derive(Default)]
struct UserControls {
    /// Texts in addition to those of the vocabulary's control tokens.
    reserved: Vec<String>,
    /// Created on first use.
    texts: OnceLock<ControlTexts>,
}

/// A run of one id between texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRun {
    /// The id.
    pub id: u32,
    /// How often it stands there.
    pub length: usize,
}

/// How texts become ids.
#[expect(clippy::large_enum_variant, reason = "one for each tokenizer")]
enum Encoder {
    /// By a vocabulary: special tokens, and the algorithm for the text between them.
    Vocab(SpecialTokens, Algorithm),
    /// By the pipeline of a `tokenizer.json`.
    Json(Box<JsonPipeline>),
}

/// Encoding algorithm of a vocabulary.
enum Algorithm {
    Bpe(Splitter, Bpe),
    CharBpe(CharBpe),
    Spm(Spm),
    Unigram(Unigram),
    WordPiece(WordPiece),
}

impl Algorithm {
    /// Whether a text is encoded as a whole: within a longer one it has other tokens, and one token may be any text.
    fn takes_whole_texts(&self) -> bool {
        matches!(self, Self::Unigram(_) | Self::WordPiece(_))
    }
}
