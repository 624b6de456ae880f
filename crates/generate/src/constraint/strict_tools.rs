//! Strict tools: calls match their tools' schemas where the model decides when to call.
//!
//! Nothing is constrained until a call opens. From there to the end of the call a grammar applies, and then nothing
//! again. So content needs no masks, except where a token would extend beyond an opening delimiter.

use crate::constraint::mask_worker::{GrammarConstraint, MaskWorker, clear};
use engine::Constraint;
use std::sync::Arc;
use text::{DelimiterSet, DelimiterWatch, Grammar};

/// Delimiters that open calls, and grammars of what follows them.
#[derive(Clone)]
pub(crate) struct StrictGrammars {
    /// Delimiters that begin tool calls.
    pub openings: Arc<DelimiterSet>,
    /// Grammar after each delimiter, where that is a call.
    pub then: Vec<Option<Arc<Grammar>>>,
    /// Grammar of the beginning of an answer in channels, which may open a call.
    pub first: Option<Arc<Grammar>>,
}

/// Constrains the calls of one answer.
pub(crate) struct StrictCalls {
    grammars: StrictGrammars,
    watch: DelimiterWatch,
    masks: Arc<MaskWorker>,
    vocab: usize,
    /// The call that is being written.
    call: Option<GrammarConstraint>,
}

impl StrictCalls {
    /// A constraint at the beginning of an answer.
    pub(crate) fn new(grammars: &StrictGrammars, masks: &Arc<MaskWorker>, vocab: usize) -> Self {
        let first = grammars.first.as_ref();
        Self {
            watch: DelimiterWatch::new(&grammars.openings),
            call: first.map(|grammar| masks.start(grammar.matcher(), vocab)),
            grammars: grammars.clone(),
            masks: Arc::clone(masks),
            vocab,
        }
    }

    /// Accepts a token without a request for the next mask of a call.
    fn advance(&mut self, token: u32) {
        if let Some(call) = &mut self.call {
            call.advance(&[token]);
            let _ = self.watch.accept_token(token);
            if call.is_complete() {
                self.call = None;
                self.watch.restart();
            }
            return;
        }
        let opened = self.watch.accept_token(token);
        let grammar = opened.and_then(|opening| self.grammars.then.get(opening)?.as_ref());
        self.call = grammar.map(|grammar| self.masks.start(grammar.matcher(), self.vocab));
    }
}

impl Constraint for StrictCalls {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        if let Some(call) = &mut self.call {
            let is_bound = call.mask(allowed);
            if is_bound && self.grammars.first.is_some() {
                self.watch
                    .completing_tokens()
                    .for_each(|id| clear(allowed, id));
            }
            return is_bound;
        }
        let mut forbidden = self.watch.straddling_tokens().peekable();
        if forbidden.peek().is_none() {
            return false;
        }
        allowed.fill(u32::MAX);
        forbidden.for_each(|id| clear(allowed, id));
        true
    }

    fn accept(&mut self, token: u32) {
        self.replay(&[token]);
    }

    fn replay(&mut self, tokens: &[u32]) {
        tokens.iter().for_each(|&token| self.advance(token));
        if let Some(call) = self.call.as_ref().filter(|_| !tokens.is_empty()) {
            call.prepare_mask();
        }
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        if let Some(call) = &self.call {
            call.forced(most, into);
        }
    }

    /// Content may always continue.
    fn is_complete(&self) -> bool {
        false
    }
}

/// A constraint of content in a channel, without delimiters spelled as text: they could not be distinguished from control tokens.
pub(crate) struct WithoutDelimiters {
    form: Box<dyn Constraint>,
    watch: DelimiterWatch,
}

impl WithoutDelimiters {
    /// A constraint without tokens.
    pub(crate) fn new(form: Box<dyn Constraint>, marks: &Arc<DelimiterSet>) -> Self {
        Self {
            form,
            watch: DelimiterWatch::new(marks),
        }
    }
}

impl Constraint for WithoutDelimiters {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        let is_bound = self.form.mask(allowed);
        if is_bound {
            self.watch
                .completing_tokens()
                .for_each(|id| clear(allowed, id));
        }
        is_bound
    }

    fn accept(&mut self, token: u32) {
        self.replay(&[token]);
    }

    fn replay(&mut self, tokens: &[u32]) {
        self.form.replay(tokens);
        for &token in tokens {
            let _ = self.watch.accept_token(token);
        }
    }

    fn is_complete(&self) -> bool {
        self.form.is_complete()
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        self.form.forced(most, into);
    }
}

/// Two constraints of one answer.
pub(crate) struct ChainedConstraint {
    /// The constraint that is applied first.
    pub first: Box<dyn Constraint>,
    /// Applies where the first does not constrain.
    pub second: Box<dyn Constraint>,
}

impl Constraint for ChainedConstraint {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        self.first.mask(allowed) || self.second.mask(allowed)
    }

    fn accept(&mut self, token: u32) {
        self.first.accept(token);
        self.second.accept(token);
    }

    fn replay(&mut self, tokens: &[u32]) {
        self.first.replay(tokens);
        self.second.replay(tokens);
    }

    fn is_complete(&self) -> bool {
        self.first.is_complete() || self.second.is_complete()
    }

    /// None: the other constraint may have to see a token before the next is forced.
    fn forced(&self, _: usize, _: &mut Vec<u32>) {}
}
