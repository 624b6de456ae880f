//! Calls that keep their tools' schemas where the model calls when it likes.
//!
//! Nothing is bound until the token comes that opens a call; from there to the end of the call's JSON the
//! grammar of the tools' calls holds, and then nothing again. So free text costs no masks.

use crate::masks::{GrammarConstraint, Masks};
use engine::Constraint;
use std::sync::Arc;
use text::Grammar;

/// The constraint of such an answer.
pub(crate) struct StrictCalls {
    /// Opens a call.
    open: u32,
    /// Of one call.
    grammar: Arc<Grammar>,
    masks: Arc<Masks>,
    vocab: usize,
    /// The call that is being made.
    call: Option<GrammarConstraint>,
}

impl StrictCalls {
    /// At the beginning of an answer, over a vocabulary of so many tokens.
    pub(crate) fn new(open: u32, grammar: &Arc<Grammar>, masks: &Arc<Masks>, vocab: usize) -> Self {
        Self {
            open,
            grammar: Arc::clone(grammar),
            masks: Arc::clone(masks),
            vocab,
            call: None,
        }
    }
}

impl Constraint for StrictCalls {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        self.call.as_mut().is_some_and(|call| call.mask(allowed))
    }

    fn accept(&mut self, token: u32) {
        match &mut self.call {
            Some(call) => {
                call.accept(token);
                if call.is_complete() {
                    self.call = None;
                }
            }
            None if token == self.open => {
                self.call = Some(self.masks.start(self.grammar.matcher(), self.vocab));
            }
            None => {}
        }
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        if let Some(call) = &self.call {
            call.forced(most, into);
        }
    }

    /// There may always be more to say.
    fn is_complete(&self) -> bool {
        false
    }
}
