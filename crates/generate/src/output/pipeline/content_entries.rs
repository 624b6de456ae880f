//! Log-probability entries of the tokens whose text is content. Tokens of reasoning, tool calls and delimiters, and those of a
//! stop string, have no entry.
//!
//! Content is a part of the decoded text, which the parser emits in order and unchanged: the place of a part is where its text
//! stands in the text that no earlier part has.

use crate::output::event::Entry;
use engine::{Token, TopLogprob};
use std::collections::VecDeque;
use std::ops::Range;
use text::Part;

/// Initial capacity for entries that wait for their text.
const HELD_ENTRIES: usize = 64;
/// Decoded bytes that are kept in addition to those that the parser holds back: a delimiter that was consumed.
const CONSUMED_BYTES_MAX: usize = 1024;

/// Assigns tokens to content. Buffers are kept, so that a warm stream allocates nothing.
pub(super) struct ContentEntries {
    /// Alternatives per entry.
    top_n: usize,
    held: VecDeque<Entry>,
    held_top: VecDeque<TopLogprob>,
    /// Bytes and characters decoded since the beginning.
    decoded: u64,
    decoded_chars: u64,
    /// The end of the decoded text: what no part has.
    unplaced: String,
    /// Places of the new parts in the decoded text.
    places: Vec<PlacedText>,
    /// Whether the last part is content.
    is_content: bool,
    /// Entries that are assigned to content.
    pub(super) entries: Vec<Entry>,
    /// Their alternatives. (entries.len(), top_n)
    pub(super) top: Vec<TopLogprob>,
}

/// The place of a part in the decoded text.
struct PlacedText {
    is_content: bool,
    bytes: Range<u64>,
}

impl ContentEntries {
    /// `is_used`: whether log-probabilities are emitted.
    pub(super) fn new(is_used: bool, top_n: usize) -> Self {
        let capacity = if is_used { HELD_ENTRIES } else { 0 };
        Self {
            top_n,
            held: VecDeque::with_capacity(capacity),
            held_top: VecDeque::with_capacity(capacity * top_n),
            decoded: 0,
            decoded_chars: 0,
            unplaced: String::new(),
            places: Vec::new(),
            is_content: true,
            entries: Vec::with_capacity(capacity),
            top: Vec::with_capacity(capacity * top_n),
        }
    }

    /// Adds a token with its alternatives; then its text.
    pub(super) fn push_token(&mut self, token: Token, top: &[TopLogprob]) {
        debug_assert_eq!(top.len(), self.top_n);
        self.held.push_back(Entry {
            token,
            start: self.decoded,
            start_chars: self.decoded_chars,
        });
        self.held_top.extend(top);
    }

    /// Adds decoded text.
    pub(super) fn push_text(&mut self, piece: &str) {
        self.decoded += piece.len() as u64;
        self.decoded_chars += piece.chars().count() as u64;
        self.unplaced.push_str(piece);
    }

    /// Finds the places of new parts. `held`: bytes at the end of the decoded text that no part has yet.
    pub(super) fn locate<'p>(
        &mut self,
        parts: impl DoubleEndedIterator<Item = Part<&'p str>>,
        held: usize,
    ) {
        let first = self.decoded - self.unplaced.len() as u64;
        let through = self.unplaced.len().saturating_sub(held);
        let through = self.unplaced.floor_char_boundary(through);
        let mut end = through;
        self.places.clear();
        // A delimiter may repeat a part's text before the part, and nothing but delimiters follows.
        for part in parts.rev() {
            let (text, is_content) = match part {
                Part::Content(text) => (text, true),
                Part::Reasoning(text) => (text, false),
                _ => ("", false),
            };
            let start = match self.unplaced[..end].rfind(text) {
                Some(start) if !text.is_empty() => start..start + text.len(),
                // Of a call, or in several places.
                Some(_) => end..end,
                None => 0..end,
            };
            end = start.start;
            let bytes = first + start.start as u64..first + start.end as u64;
            self.places.push(PlacedText { is_content, bytes });
        }
        self.places.reverse();
        let placed = match self.places.last() {
            Some(last) => {
                self.is_content = last.is_content;
                (last.bytes.end - first) as usize
            }
            None => 0,
        };
        let kept = held + CONSUMED_BYTES_MAX;
        let most = self.unplaced.len().saturating_sub(kept);
        let most = self.unplaced.floor_char_boundary(most);
        self.unplaced.drain(..placed.max(most));
    }

    /// Assigns the entries of the new part with this number, in order.
    pub(super) fn assign(&mut self, part: usize) {
        let Some(PlacedText { is_content, bytes }) = self.places.get(part) else {
            return;
        };
        let (is_content, bytes) = (*is_content, bytes.clone());
        let before = if is_content { bytes.start } else { bytes.end };
        self.drop_before(before);
        while is_content
            && self
                .held
                .front()
                .is_some_and(|entry| entry.start < bytes.end)
        {
            self.release_first();
        }
    }

    /// Drops the entries of text that no part will have.
    pub(super) fn drop_consumed(&mut self) {
        self.drop_before(self.decoded - self.unplaced.len() as u64);
    }

    /// After the last part: assigns the tokens without text that follow the content, and drops the others.
    pub(super) fn finish(&mut self, is_stopped: bool) {
        while self.held.front().is_some() {
            let is_empty = self
                .held
                .front()
                .is_some_and(|entry| entry.start == self.first_end());
            if is_empty && self.is_content && !is_stopped {
                self.release_first();
            } else {
                self.drop_first();
            }
        }
    }

    /// Removes the first `entries` entries that were assigned.
    pub(super) fn clear(&mut self, entries: usize) {
        self.entries.drain(..entries);
        self.top.drain(..entries * self.top_n);
    }

    /// End of the first held entry's text.
    fn first_end(&self) -> u64 {
        self.held.get(1).map_or(self.decoded, |next| next.start)
    }

    /// Drops entries whose text ends here or before. An entry without text at this place belongs to what follows.
    fn drop_before(&mut self, place: u64) {
        while self.held.front().is_some_and(|first| first.start < place)
            && self.first_end() <= place
        {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        self.held.pop_front();
        self.held_top.drain(..self.top_n);
    }

    fn release_first(&mut self) {
        self.entries.extend(self.held.pop_front());
        self.top.extend(self.held_top.drain(..self.top_n));
    }
}
