//! States of the fake model, and its pages as bytes.
//!
//! A state is a hash of all tokens before a position, with the position. A span that begins at another position than its
//! state, a state that is written twice in a batch, or read and written, is reported as a bad batch: so a state that was
//! freed too early, given to the wrong sequence, or cut at the wrong place is found.

use super::{FakeModel, counted_spans, mix};
use model::{Batch, ForwardError, PageId, SpanStates, SpanView, StateId};
use std::ops::Range;

/// A state: the position, and the hash of all tokens before it.
#[derive(Clone, Copy)]
struct FakeState {
    position: usize,
    hash: u64,
}

/// A state that was never written, or whose pass failed.
const NOTHING: FakeState = FakeState {
    position: usize::MAX,
    hash: 0,
};

/// The states, if the model has any.
#[derive(Default)]
pub(super) struct FakeStates {
    states: Vec<FakeState>,
    /// Of the last batch: what identifies each span, and the hash before its first token.
    before: Vec<(usize, u64)>,
    read: Vec<StateId>,
    written: Vec<StateId>,
}

impl FakeStates {
    pub(super) fn new(states: usize) -> Self {
        Self {
            states: vec![NOTHING; states],
            before: Vec::new(),
            read: Vec::new(),
            written: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Checks the states of a batch, and changes none.
    pub(super) fn check(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        self.read.clear();
        self.written.clear();
        if self.states.is_empty() {
            return Ok(());
        }
        for span in batch.spans() {
            let states = span.states.ok_or(bad("a span without states"))?;
            self.note(&span, &states)?;
            self.read_state(&span, &states)?;
        }
        Ok(())
    }

    /// Runs the spans of a batch, whose rows count as `rows`, over their states.
    pub(super) fn advance(&mut self, batch: &Batch, rows: &[u32]) -> Result<(), ForwardError> {
        self.before.clear();
        self.read.clear();
        self.written.clear();
        if self.states.is_empty() {
            return if batch.spans().any(|span| span.states.is_some()) {
                Err(ForwardError::BadBatch("states of a model without any"))
            } else {
                Ok(())
            };
        }
        for span in counted_spans(batch, rows) {
            let states = span.states.ok_or(bad("a span without states"))?;
            self.note(&span, &states)?;
            let mut hash = self.read_state(&span, &states)?;
            self.before.push((identity(&span), hash));
            let mut done = 0;
            for written in states.written(span.tokens.len()) {
                let tokens = &span.tokens[done..written.tokens];
                hash = tokens.iter().fold(hash, |hash, &token| step(hash, token));
                done = written.tokens;
                self.states[written.state as usize] = FakeState {
                    position: span.position + done,
                    hash,
                };
            }
        }
        Ok(())
    }

    /// Makes all states undefined.
    pub(super) fn clear(&mut self) {
        self.states.fill(NOTHING);
    }

    /// Makes the states that a failed batch would have written undefined.
    pub(super) fn spoil(&mut self, batch: &Batch) {
        for span in batch.spans() {
            let written = span.states.map(|states| states.written(span.tokens.len()));
            for written in written.into_iter().flatten() {
                if let Some(state) = self.states.get_mut(written.state as usize) {
                    *state = NOTHING;
                }
            }
        }
    }

    /// A hash of the tokens of a span of the last batch up to `position`, and of all before them; 0 without states.
    pub(super) fn hash_at(&self, span: &SpanView<'_>, position: usize) -> u64 {
        let mut before = self.before.iter();
        let Some((_, hash)) = before.find(|(span_identity, _)| *span_identity == identity(span))
        else {
            return 0;
        };
        let tokens = &span.tokens[..=position - span.position];
        tokens.iter().fold(*hash, |hash, &token| step(hash, token))
    }

    /// Checks that no state of a batch is written twice, or read and written.
    fn note(&mut self, span: &SpanView<'_>, states: &SpanStates) -> Result<(), ForwardError> {
        self.read.extend(states.before);
        for written in states.written(span.tokens.len()) {
            if self.written.contains(&written.state) {
                return Err(bad("a state is written twice"));
            }
            self.written.push(written.state);
        }
        let clash = self.read.iter().any(|state| self.written.contains(state));
        if clash {
            Err(bad("a state is read and written"))
        } else {
            Ok(())
        }
    }

    fn read_state(&self, span: &SpanView<'_>, states: &SpanStates) -> Result<u64, ForwardError> {
        match (span.position, states.before) {
            (0, None) => Ok(0),
            (0, Some(_)) => Err(bad("a state before position 0")),
            (position, Some(state)) => match self.states.get(state as usize) {
                Some(state) if state.position == position => Ok(state.hash),
                _ => Err(bad("a state of another position")),
            },
            (_, None) => Err(bad("no state before a position")),
        }
    }
}

fn bad(why: &'static str) -> ForwardError {
    ForwardError::BadBatch(why)
}

/// Identifies a span within a batch: the place of the first token.
fn identity(span: &SpanView<'_>) -> usize {
    span.tokens.as_ptr().addr()
}

fn step(hash: u64, token: u32) -> u64 {
    mix(hash, u64::from(token) + 1)
}

/// Bytes of a slot of a token: the hash, then the token. Pages with vectors are not copied.
pub(super) const SLOT_BYTES: usize = 12;

impl FakeModel {
    /// Copies the slots of a page out.
    pub(super) fn write_slots(&self, page: PageId, bytes: &mut [u8]) {
        for (slot, bytes) in self.slots_of(page).zip(bytes.chunks_exact_mut(SLOT_BYTES)) {
            bytes[..8].copy_from_slice(&self.slots[slot].to_le_bytes());
            bytes[8..].copy_from_slice(&self.tokens[slot].to_le_bytes());
        }
    }

    /// Copies the slots of a page in.
    pub(super) fn read_slots(&mut self, page: PageId, bytes: &[u8]) {
        for (slot, bytes) in self.slots_of(page).zip(bytes.chunks_exact(SLOT_BYTES)) {
            let (hash, token) = bytes.split_at(8);
            self.slots[slot] = u64::from_le_bytes(hash.try_into().expect("eight bytes"));
            self.tokens[slot] = u32::from_le_bytes(token.try_into().expect("four bytes"));
            (self.inputs[slot], self.blocked[slot]) = (self.tokens[slot], false);
        }
    }

    fn slots_of(&self, page: PageId) -> Range<usize> {
        let tokens = self.config.dims.page_tokens;
        let start = page as usize * tokens;
        start..start + tokens
    }
}
