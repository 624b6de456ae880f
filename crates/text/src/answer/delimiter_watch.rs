//! Recognition of delimiters during generation, at the token that completes a delimiter.
//!
//! # Law
//! A [`DelimiterWatch`] follows the text as the [`AnswerParser`](super::AnswerParser) does, and finds every
//! position where the parser may find a delimiter. The watch may find a delimiter that the parser ignores
//! (inside reasoning, for example), never the reverse. No token may straddle the end of a delimiter: such
//! tokens are masked ([`DelimiterWatch::straddling_tokens`]), so that the text after a delimiter begins with
//! a token (the token-healing problem, solved by exclusion). The straddling tokens are listed once for each
//! vocabulary.

use super::call_parser::{CallSyntax, CallSyntaxKind, HeaderPart};
use super::family_syntax;
use super::family_syntax::{DelimiterEffect, DelimiterPlace};
use super::model_family::{AnswerFormat, ToolFamily};
use crate::Tokenizer;
use std::sync::Arc;

/// Bytes of recent text that a watch keeps; longer than any delimiter.
const TAIL_BYTES_MAX: usize = 128;

/// Delimiters of a family, with the tokens of one vocabulary that straddle or complete them.
pub struct DelimiterSet {
    marks: Vec<WatchedDelimiter>,
    /// Texts of control tokens that the parser sees, sorted by id; other control tokens have no text.
    shown: Vec<(u32, String)>,
    tokenizer: Arc<Tokenizer>,
    /// Tokens that straddle a delimiter which is valid only before any content.
    beyond_start: Vec<u32>,
}

impl DelimiterSet {
    /// Delimiters that open calls. `None` for a family without calls, and for Harmony without its control
    /// tokens: as plain text these delimiters may occur inside strings. Visits the whole vocabulary, which
    /// takes about ten milliseconds for a large one.
    pub fn call_openings(format: AnswerFormat, tokenizer: &Arc<Tokenizer>) -> Option<Self> {
        let marks = call_delimiters(format)?;
        let is_token = |mark: &WatchedDelimiter| {
            tokenizer
                .id_of(mark.text)
                .is_some_and(|id| tokenizer.is_control(id))
        };
        let is_known = format.tools != ToolFamily::Harmony || marks.iter().all(is_token);
        is_known.then(|| Self::new(marks, format, tokenizer))
    }

    /// Delimiters that close reasoning. `None` for a family without reasoning delimiters. Costs as much as
    /// [`call_openings`](Self::call_openings).
    pub fn reasoning_closings(format: AnswerFormat, tokenizer: &Arc<Tokenizer>) -> Option<Self> {
        let (_, closes) = format.reasoning_delimiters()?;
        let marks = closes
            .iter()
            .map(|text| WatchedDelimiter::new(text, WatchPlace::Anywhere, None));
        Some(Self::new(marks.collect(), format, tokenizer))
    }

    fn new(marks: Vec<WatchedDelimiter>, format: AnswerFormat, tokenizer: &Arc<Tokenizer>) -> Self {
        let shown = format.visible_control_ids(tokenizer).into_iter();
        let shown = shown.filter_map(|id| Some((id, tokenizer.piece(id)?.to_owned())));
        let mut it = Self {
            marks,
            shown: shown.collect(),
            tokenizer: Arc::clone(tokenizer),
            beyond_start: Vec::new(),
        };
        it.walk();
        it
    }

    /// For each delimiter the syntax of the call that follows, if a call follows.
    pub fn call_syntaxes(&self) -> impl Iterator<Item = Option<CallSyntax>> {
        self.marks.iter().map(|mark| mark.form)
    }

    /// The text of a token as the parser sees the token.
    fn text(&self, id: u32) -> &[u8] {
        match self.shown.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => self.shown[at].1.as_bytes(),
            Err(_) if self.tokenizer.is_control(id) => &[],
            Err(_) => self.tokenizer.bytes(id).unwrap_or_default(),
        }
    }

    /// Lists the tokens that straddle or complete delimiters.
    fn walk(&mut self) {
        let count = u32::try_from(self.tokenizer.vocab_size()).unwrap_or(u32::MAX);
        for id in 0..count {
            let text = self.text(id).to_vec();
            let mut beyond_start = false;
            for mark in &mut self.marks {
                beyond_start |=
                    mark.counts == WatchPlace::Start && goes_beyond(&text, mark.text.as_bytes());
                mark.note(id, &text);
            }
            if beyond_start {
                self.beyond_start.push(id);
            }
        }
    }

    /// Texts of the delimiters that are recognized in one kind of place.
    fn that_count(&self, counts: WatchPlace) -> impl Iterator<Item = &'static str> {
        let marks = self.marks.iter().filter(move |mark| mark.counts == counts);
        marks.map(|mark| mark.text)
    }
}

/// Follows one answer from delimiter to delimiter.
#[derive(Clone)]
pub struct DelimiterWatch {
    marks: Arc<DelimiterSet>,
    /// Text since the last delimiter, at most [`TAIL_BYTES_MAX`] bytes.
    tail: Vec<u8>,
    /// Whether no content came since the last delimiter.
    fresh: bool,
}

impl DelimiterWatch {
    /// A watch at the beginning of an answer or of a reasoning block.
    pub fn new(marks: &Arc<DelimiterSet>) -> Self {
        Self {
            marks: Arc::clone(marks),
            tail: Vec::with_capacity(TAIL_BYTES_MAX),
            fresh: true,
        }
    }

    /// Consumes a token; the index of the delimiter that the token completes.
    pub fn accept_token(&mut self, token: u32) -> Option<usize> {
        let marks = Arc::clone(&self.marks);
        self.tail.extend_from_slice(marks.text(token));
        let is_whole = |mark: &WatchedDelimiter| match mark.counts {
            WatchPlace::Start => self.fresh && self.said() == mark.text.as_bytes(),
            WatchPlace::Anywhere => self.tail.ends_with(mark.text.as_bytes()),
            WatchPlace::Between => false,
        };
        let whole = marks
            .marks
            .iter()
            .enumerate()
            .filter(|(_, mark)| is_whole(mark));
        // The longest of several delimiters that end here counts.
        let whole = whole.max_by_key(|(_, mark)| mark.text.len());
        if let Some((place, _)) = whole {
            self.restart();
            return Some(place);
        }
        self.fresh &= self.may_begin();
        self.forget();
        None
    }

    /// Drops text that cannot be part of a delimiter. Leading separators are dropped as a unit, so that the
    /// remaining text has the same meaning.
    fn forget(&mut self) {
        let most = self.tail.len().saturating_sub(TAIL_BYTES_MAX / 2);
        let cut = if self.fresh {
            (0..=most)
                .rev()
                .find(|&cut| self.said_of(&self.tail[..cut]).is_empty())
        } else {
            Some(most)
        };
        self.tail.drain(..cut.unwrap_or(0));
    }

    /// Resets the watch after the text that a delimiter opened.
    pub fn restart(&mut self) {
        self.tail.clear();
        self.fresh = true;
    }

    /// Tokens that must be masked because they straddle the end of a delimiter; may contain duplicates.
    pub fn straddling_tokens(&self) -> impl Iterator<Item = u32> {
        let start: &[u32] = if self.fresh {
            &self.marks.beyond_start
        } else {
            &[]
        };
        let beyond = self.marks.marks.iter().flat_map(|mark| {
            let there = mark.beyond.iter().enumerate();
            let there = there.filter(|(there, _)| {
                let begun = &mark.text.as_bytes()[..*there];
                match mark.counts {
                    WatchPlace::Anywhere => self.tail.ends_with(begun),
                    WatchPlace::Start => self.fresh && *there > 0 && self.said() == begun,
                    WatchPlace::Between => false,
                }
            });
            there.flat_map(|(_, ids)| ids)
        });
        start.iter().chain(beyond).copied()
    }

    /// Tokens that would complete a partly written delimiter, or extend past it.
    pub fn completing_tokens(&self) -> impl Iterator<Item = u32> {
        let marks = self
            .marks
            .marks
            .iter()
            .filter(|mark| mark.counts == WatchPlace::Anywhere);
        let ends = marks.flat_map(|mark| {
            let there = (1..mark.text.len())
                .filter(|&there| self.tail.ends_with(&mark.text.as_bytes()[..there]));
            there.flat_map(|there| mark.whole[there].iter().chain(&mark.beyond[there]))
        });
        ends.copied()
    }

    /// Content since the last delimiter.
    fn said(&self) -> &[u8] {
        self.said_of(&self.tail)
    }

    /// A text without leading white space and separators.
    fn said_of<'t>(&self, mut said: &'t [u8]) -> &'t [u8] {
        loop {
            let before = said.len();
            said = said.trim_ascii_start();
            for between in self.marks.that_count(WatchPlace::Between) {
                said = said.strip_prefix(between.as_bytes()).unwrap_or(said);
            }
            if said.len() == before {
                return said;
            }
        }
    }

    /// Whether the content is empty or a prefix of a delimiter.
    fn may_begin(&self) -> bool {
        let said = self.said();
        let mut texts = [WatchPlace::Start, WatchPlace::Between]
            .into_iter()
            .flat_map(|counts| self.marks.that_count(counts));
        said.is_empty() || texts.any(|text| text.as_bytes().starts_with(said))
    }
}

/// Delimiters that open calls in a family's answers; `None` for a family without calls.
fn call_delimiters(format: AnswerFormat) -> Option<Vec<WatchedDelimiter>> {
    if format.tools == ToolFamily::Harmony {
        let parts = HeaderPart::openings().into_iter();
        let mark = |(text, part)| {
            WatchedDelimiter::new(
                text,
                WatchPlace::Anywhere,
                Some(CallSyntax(CallSyntaxKind::Header(part))),
            )
        };
        return Some(parts.map(mark).collect());
    }
    let syntax = format.tools.syntax()?;
    let markers = family_syntax::all_markers(syntax, format.reasoning.thoughts());
    let calls = markers.map(|marker| {
        let form = match marker.then {
            DelimiterEffect::Call(body) => Some(CallSyntaxKind::CallBody(body, "", marker.close)),
            DelimiterEffect::CallHere(body) => {
                Some(CallSyntaxKind::CallBody(body, marker.text, marker.close))
            }
            _ => None,
        };
        let form = form.map(CallSyntax);
        let counts = match (marker.place, form) {
            (DelimiterPlace::Start, _) => WatchPlace::Start,
            (DelimiterPlace::Between, None) => WatchPlace::Between,
            _ => WatchPlace::Anywhere,
        };
        WatchedDelimiter::new(marker.text, counts, form)
    });
    // After reasoning, delimiters that are valid only at the start are valid again.
    let thoughts = format.reasoning_delimiters().into_iter();
    let thoughts = thoughts.flat_map(|(opens, closes)| opens.iter().chain(closes));
    let thoughts = thoughts.map(|text| WatchedDelimiter::new(text, WatchPlace::Anywhere, None));
    Some(calls.chain(thoughts).collect())
}

/// One delimiter of a family.
struct WatchedDelimiter {
    pub(super) text: &'static str,
    pub(super) counts: WatchPlace,
    pub(super) form: Option<CallSyntax>,
    /// By the number of bytes already present: tokens that extend past the end of the delimiter.
    pub(super) beyond: Vec<Vec<u32>>,
    /// By the number of bytes already present (at least one): tokens that complete the delimiter.
    pub(super) whole: Vec<Vec<u32>>,
}

/// Where a delimiter is recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchPlace {
    Anywhere,
    /// Only before any content since the last delimiter.
    Start,
    /// A separator, which is not content.
    Between,
}

impl WatchedDelimiter {
    pub(super) fn new(text: &'static str, counts: WatchPlace, form: Option<CallSyntax>) -> Self {
        Self {
            text,
            counts,
            form,
            beyond: vec![Vec::new(); text.len()],
            whole: vec![Vec::new(); text.len()],
        }
    }

    /// Registers a token that completes or straddles the delimiter from any position in the delimiter.
    fn note(&mut self, id: u32, text: &[u8]) {
        let mark = self.text.as_bytes();
        for (there, whole) in self.whole.iter_mut().enumerate().skip(1) {
            if text == &mark[there..] {
                whole.push(id);
            }
        }
        for (there, beyond) in self.beyond.iter_mut().enumerate() {
            let rest = &mark[there..];
            let goes = match there {
                0 => self.counts == WatchPlace::Anywhere && goes_beyond(text, mark),
                _ => text.len() > rest.len() && text.starts_with(rest),
            };
            if goes {
                beyond.push(id);
            }
        }
    }
}

/// Whether a text contains the delimiter anywhere except at the end.
fn goes_beyond(text: &[u8], mark: &[u8]) -> bool {
    let inside = &text[..text.len().saturating_sub(1)];
    inside.windows(mark.len()).any(|part| part == mark)
}
