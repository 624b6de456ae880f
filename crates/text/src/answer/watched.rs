//! Marks in an answer that is being made: found at the token that makes them whole.
//!
//! # Law
//!
//! A [`MarkWatch`] follows the text as the [`AnswerParser`](super::AnswerParser) reads it, and finds every place at
//! which that may find a mark: it may see one where the parser sees none (in what is thought, say), never the
//! other way round. No token goes beyond the end of a mark: those that would are not to be allowed
//! ([`MarkWatch::forbidden`]), so that what follows a mark begins with a token. They are listed once for a
//! vocabulary.

use super::call_form::CallForm;
use super::family::{AnswerFormat, ToolFamily};
use super::mark::{Counts, Mark, goes_beyond};
use super::openings;
use crate::Tokenizer;
use std::sync::Arc;

/// Bytes of text that a watch remembers: more than any mark has.
const TAIL_BYTES_MAX: usize = 128;

/// The marks that are looked for in answers of one vocabulary.
pub struct WatchedMarks {
    marks: Vec<Mark>,
    /// What the parser sees of control tokens, sorted; nothing of others.
    shown: Vec<(u32, String)>,
    tokenizer: Arc<Tokenizer>,
    /// Tokens that go beyond a mark which counts where nothing was said yet.
    beyond_start: Vec<u32>,
}

impl WatchedMarks {
    /// What opens calls in answers of such a model. `None`: it writes none, or it is gpt-oss's way of writing without
    /// its control tokens: there a mark may stand in a string, and only tokens tell. Takes a walk through the vocabulary, of
    /// some ten milliseconds where that is large.
    pub fn openings(format: AnswerFormat, tokenizer: &Arc<Tokenizer>) -> Option<Self> {
        let marks = openings::of(format)?;
        let is_token = |mark: &Mark| {
            tokenizer
                .id_of(mark.text)
                .is_some_and(|id| tokenizer.is_control(id))
        };
        let is_known = format.tools != ToolFamily::Harmony || marks.iter().all(is_token);
        is_known.then(|| Self::new(marks, format, tokenizer))
    }

    /// What closes the thoughts of such a model. `None`: it marks none. As long as the other.
    pub fn closings(format: AnswerFormat, tokenizer: &Arc<Tokenizer>) -> Option<Self> {
        let (_, closes) = format.thought_texts()?;
        let marks = closes
            .iter()
            .map(|text| Mark::new(text, Counts::Anywhere, None));
        Some(Self::new(marks.collect(), format, tokenizer))
    }

    fn new(marks: Vec<Mark>, format: AnswerFormat, tokenizer: &Arc<Tokenizer>) -> Self {
        let shown = format.shown_ids(tokenizer).into_iter();
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

    /// What follows each mark where that is a call, at the mark's place.
    pub fn forms(&self) -> impl Iterator<Item = Option<CallForm>> {
        self.marks.iter().map(|mark| mark.form)
    }

    /// What the parser sees of a token.
    fn text(&self, id: u32) -> &[u8] {
        match self.shown.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => self.shown[at].1.as_bytes(),
            Err(_) if self.tokenizer.is_control(id) => &[],
            Err(_) => self.tokenizer.bytes(id).unwrap_or_default(),
        }
    }

    /// Finds the tokens that go beyond the marks.
    fn walk(&mut self) {
        let count = u32::try_from(self.tokenizer.vocab_size()).unwrap_or(u32::MAX);
        for id in 0..count {
            let text = self.text(id).to_vec();
            let mut beyond_start = false;
            for mark in &mut self.marks {
                beyond_start |=
                    mark.counts == Counts::Start && goes_beyond(&text, mark.text.as_bytes());
                mark.note(id, &text);
            }
            if beyond_start {
                self.beyond_start.push(id);
            }
        }
    }

    /// The texts that count so.
    fn that_count(&self, counts: Counts) -> impl Iterator<Item = &'static str> {
        let marks = self.marks.iter().filter(move |mark| mark.counts == counts);
        marks.map(|mark| mark.text)
    }
}

/// Follows one answer from mark to mark.
#[derive(Clone)]
pub struct MarkWatch {
    marks: Arc<WatchedMarks>,
    /// What was said last, since the last mark at most.
    tail: Vec<u8>,
    /// Nothing was said yet, since the last mark.
    fresh: bool,
}

impl MarkWatch {
    /// At the beginning of an answer, or of what is thought.
    pub fn new(marks: &Arc<WatchedMarks>) -> Self {
        Self {
            marks: Arc::clone(marks),
            tail: Vec::with_capacity(TAIL_BYTES_MAX),
            fresh: true,
        }
    }

    /// Takes a token; the place of the mark that is whole with it.
    pub fn take(&mut self, token: u32) -> Option<usize> {
        let marks = Arc::clone(&self.marks);
        self.tail.extend_from_slice(marks.text(token));
        let is_whole = |mark: &Mark| match mark.counts {
            Counts::Start => self.fresh && self.said() == mark.text.as_bytes(),
            Counts::Anywhere => self.tail.ends_with(mark.text.as_bytes()),
            Counts::Between => false,
        };
        let whole = marks
            .marks
            .iter()
            .enumerate()
            .filter(|(_, mark)| is_whole(mark));
        // Of two that end here the longer is meant.
        let whole = whole.max_by_key(|(_, mark)| mark.text.len());
        if let Some((place, _)) = whole {
            self.restart();
            return Some(place);
        }
        self.fresh &= self.may_begin();
        self.forget();
        None
    }

    /// Forgets what can be no part of a mark. What is nothing said goes as a whole, so that the rest is that too.
    fn forget(&mut self) {
        let most = self.tail.len().saturating_sub(TAIL_BYTES_MAX / 2);
        let cut = match self.fresh {
            true => (0..=most)
                .rev()
                .find(|&cut| self.said_of(&self.tail[..cut]).is_empty()),
            false => Some(most),
        };
        self.tail.drain(..cut.unwrap_or(0));
    }

    /// What a mark opened is over.
    pub fn restart(&mut self) {
        self.tail.clear();
        self.fresh = true;
    }

    /// The tokens that may not come next, some of them more than once.
    pub fn forbidden(&self) -> impl Iterator<Item = u32> {
        let start: &[u32] = match self.fresh {
            true => &self.marks.beyond_start,
            false => &[],
        };
        let beyond = self.marks.marks.iter().flat_map(|mark| {
            let there = mark.beyond.iter().enumerate();
            let there = there.filter(|(there, _)| {
                let begun = &mark.text.as_bytes()[..*there];
                match mark.counts {
                    Counts::Anywhere => self.tail.ends_with(begun),
                    Counts::Start => self.fresh && *there > 0 && self.said() == begun,
                    Counts::Between => false,
                }
            });
            there.flat_map(|(_, ids)| ids)
        });
        start.iter().chain(beyond).copied()
    }

    /// The tokens that would spell a mark, piece by piece, or go beyond it.
    pub fn spelling(&self) -> impl Iterator<Item = u32> {
        let marks = self
            .marks
            .marks
            .iter()
            .filter(|mark| mark.counts == Counts::Anywhere);
        let ends = marks.flat_map(|mark| {
            let there = (1..mark.text.len())
                .filter(|&there| self.tail.ends_with(&mark.text.as_bytes()[..there]));
            there.flat_map(|there| mark.whole[there].iter().chain(&mark.beyond[there]))
        });
        ends.copied()
    }

    /// What was said.
    fn said(&self) -> &[u8] {
        self.said_of(&self.tail)
    }

    /// A text without what at its beginning is nothing said.
    fn said_of<'t>(&self, mut said: &'t [u8]) -> &'t [u8] {
        loop {
            let before = said.len();
            said = said.trim_ascii_start();
            for between in self.marks.that_count(Counts::Between) {
                said = said.strip_prefix(between.as_bytes()).unwrap_or(said);
            }
            if said.len() == before {
                return said;
            }
        }
    }

    /// Whether what was said may yet become a mark, or is nothing.
    fn may_begin(&self) -> bool {
        let said = self.said();
        let mut texts = [Counts::Start, Counts::Between]
            .into_iter()
            .flat_map(|counts| self.marks.that_count(counts));
        said.is_empty() || texts.any(|text| text.as_bytes().starts_with(said))
    }
}
