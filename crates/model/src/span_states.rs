//! States of fixed size: what a sequence keeps besides pages, in a model with recurrent layers.
//!
//! A state covers all tokens before a position, in all recurrent layers. A pass reads the state before a span and writes
//! the one after it elsewhere, so a state is never changed: it can be kept as a checkpoint, shared by several sequences, or
//! read again after a pass that failed.

/// Number of a state: `0..states` of the model.
pub type StateId = u32;

/// States within a span that a pass keeps, at most.
pub const KEPT_MAX: usize = 3;

/// The states that a span reads and writes. No state is written twice in a batch, or read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanStates {
    /// State before the first token; `None` at position 0, where there is nothing to remember.
    pub before: Option<StateId>,
    /// Receives the state after the last token.
    pub after: StateId,
    /// Receive the states after as many tokens of the span, fewer than all; ascending.
    pub kept: [Option<KeptState>; KEPT_MAX],
}

/// A state within a span that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptState {
    /// Tokens of the span that the state covers.
    pub tokens: usize,
    /// Receives the state.
    pub state: StateId,
}

impl SpanStates {
    /// States of a span that keeps none in between.
    pub fn new(before: Option<StateId>, after: StateId) -> Self {
        Self {
            before,
            after,
            kept: [None; KEPT_MAX],
        }
    }

    /// States for a caller who gives each of a fixed number of sequences two states: a pass reads what the pass before,
    /// with another parity of `turn`, wrote.
    pub fn alternating(sequence: usize, turn: usize, position: usize) -> Self {
        let state = |turn: usize| (2 * sequence + turn % 2) as StateId;
        Self::new((position > 0).then(|| state(turn + 1)), state(turn))
    }

    /// The states that are written, in the order of their positions in a span of `len` tokens.
    pub fn written(&self, len: usize) -> impl Iterator<Item = KeptState> + use<> {
        let last = KeptState {
            tokens: len,
            state: self.after,
        };
        self.kept.into_iter().flatten().chain([last])
    }
}
