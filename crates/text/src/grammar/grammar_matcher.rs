//! State of one answer in a grammar.

use super::productive_symbols;
use super::rejection::GrammarRejection;
use llguidance::{Matcher, TokenParser};
use std::sync::Arc;

/// The matcher failed: a mask exceeded a bound, or an accepted token was not allowed. The answer is
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatcherError(pub String);

/// The state of one answer in a grammar.
pub struct GrammarMatcher {
    matcher: Matcher,
    /// Forced next tokens in reverse order.
    forced: Vec<u32>,
}

impl GrammarMatcher {
    /// A matcher at the beginning of an answer. Computes the first mask under the bounds of every mask, so
    /// that a grammar over a bound is rejected before the answer begins.
    pub(super) fn start(mut start: TokenParser) -> Result<Self, GrammarRejection> {
        // llguidance enforces bounds from the first mask on, and computes forced tokens before that.
        let computer = Arc::clone(&start.bias_computer);
        let _ = start.parser.compute_bias(&*computer, &[]);
        let forces = !start.parser.grammar().lexer_spec().no_forcing;
        if forces && start.token_env.tokenize_is_canonical() {
            let _ = start.parser.force_bytes();
        }
        if let Some(error) = start.parser.get_error() {
            return Err(GrammarRejection::of(&error.message()));
        }
        let mut matcher = Self {
            matcher: Matcher::new(Ok(start)),
            forced: Vec::new(),
        };
        matcher.force();
        match matcher.matcher.compute_mask_or_eos() {
            Ok(_) => Ok(matcher),
            Err(error) if error.to_string().starts_with("NoExtension") => {
                Err(GrammarRejection::wrong(productive_symbols::NOTHING))
            }
            Err(error) => Err(GrammarRejection::of(&error)),
        }
    }

    /// An independent copy of this state.
    pub(super) fn again(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            forced: self.forced.clone(),
        }
    }

    /// Writes the token bitmask: bit `id % 32` of word `id / 32`. Includes end-of-sequence tokens where the
    /// answer is complete. `allowed` must be zeroed.
    ///
    /// # Errors
    /// The mask exceeds [`MASK_FUEL`](super::MASK_FUEL) or [`MASK_ITEMS_MAX`](super::MASK_ITEMS_MAX), or the
    /// matcher failed before.
    pub fn mask(&mut self, allowed: &mut [u32]) -> Result<(), MatcherError> {
        if let Some(&token) = self.forced.last() {
            if let Some(word) = allowed.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
            return Ok(());
        }
        let mask = self.matcher.compute_mask_or_eos();
        let mask = mask.map_err(|error| MatcherError(GrammarRejection::of(&error).why))?;
        for (allowed, mask) in allowed.iter_mut().zip(mask.as_slice()) {
            *allowed = *mask;
        }
        Ok(())
    }

    /// Advances by a sampled token.
    ///
    /// # Errors
    /// The mask did not allow the token, a bound of the lexer or parser was reached, or the matcher failed before.
    pub fn accept(&mut self, token: u32) -> Result<(), MatcherError> {
        let taken = self.matcher.consume_token(token);
        taken.map_err(|error| MatcherError(GrammarRejection::of(&error).why))?;
        if self.forced.pop() != Some(token) {
            self.forced.clear();
        }
        if self.forced.is_empty() {
            self.force();
        }
        Ok(())
    }

    /// Whether the answer is complete and nothing may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.stop_reason().is_ok() && self.matcher.is_stopped()
    }

    /// Whether the answer would be valid if the answer ended here.
    pub fn is_accepting(&mut self) -> bool {
        self.is_complete() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// The only tokens that may come next, in order. Their masks cost nothing.
    pub fn forced_tokens(&self) -> impl Iterator<Item = u32> {
        self.forced.iter().rev().copied()
    }

    fn force(&mut self) {
        if !self.matcher.is_stopped() {
            self.forced = self.matcher.compute_ff_tokens();
            self.forced.reverse();
        }
    }
}

/// A compiled grammar, from which matchers are cheap to create.
pub struct Grammar {
    /// Matcher at the beginning of an answer.
    pub(super) start: GrammarMatcher,
}

impl Grammar {
    /// A matcher for a new answer. Matchers share no state, so no answer can slow another or consume
    /// another's bounds.
    pub fn matcher(&self) -> GrammarMatcher {
        self.start.again()
    }
}
