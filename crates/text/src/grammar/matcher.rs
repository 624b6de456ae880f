//! Where one answer stands in its grammar.

use super::bounds::Refusal;
use super::completable;
use llguidance::{Matcher, TokenParser};
use std::sync::Arc;

/// The grammar cannot go on: a mask cost more than it may, or a token was taken that it does not
/// allow. The answer is as it was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfGrammar(pub String);

/// One answer's walk through its grammar.
pub struct GrammarMatcher {
    matcher: Matcher,
    /// The tokens that must come next, the last one first.
    forced: Vec<u32>,
}

impl GrammarMatcher {
    /// At the beginning of an answer. The first mask is computed, under the bounds of every mask: what is over one
    /// at once is known before an answer begins.
    pub(super) fn start(mut start: TokenParser) -> Result<Self, Refusal> {
        // The library bounds states and work from the first mask on, and forces tokens before it.
        let computer = Arc::clone(&start.bias_computer);
        let _ = start.parser.compute_bias(&*computer, &[]);
        let forces = !start.parser.grammar().lexer_spec().no_forcing;
        if forces && start.token_env.tokenize_is_canonical() {
            let _ = start.parser.force_bytes();
        }
        if let Some(error) = start.parser.get_error() {
            return Err(Refusal::of(&error.message()));
        }
        let mut matcher = Self {
            matcher: Matcher::new(Ok(start)),
            forced: Vec::new(),
        };
        matcher.force();
        match matcher.matcher.compute_mask_or_eos() {
            Ok(_) => Ok(matcher),
            Err(error) if error.to_string().starts_with("NoExtension") => {
                Err(Refusal::wrong(completable::NOTHING))
            }
            Err(error) => Err(Refusal::of(&error)),
        }
    }

    /// A copy of the answer so far that shares nothing with this one.
    pub(super) fn again(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            forced: self.forced.clone(),
        }
    }

    /// Writes which tokens may come next: bit `id % 32` of word `id / 32`. An end-of-sequence token
    /// is among them where the answer is complete. `allowed` is all zero.
    ///
    /// # Errors
    /// This mask costs more than [`MASK_FUEL`](super::MASK_FUEL) or [`MASK_ITEMS_MAX`](super::MASK_ITEMS_MAX), or the matcher
    /// failed before.
    pub fn mask(&mut self, allowed: &mut [u32]) -> Result<(), OutOfGrammar> {
        if let Some(&token) = self.forced.last() {
            if let Some(word) = allowed.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
            return Ok(());
        }
        let mask = self.matcher.compute_mask_or_eos();
        let mask = mask.map_err(|error| OutOfGrammar(Refusal::of(&error).why))?;
        for (allowed, mask) in allowed.iter_mut().zip(mask.as_slice()) {
            *allowed = *mask;
        }
        Ok(())
    }

    /// Takes the token that was chosen.
    ///
    /// # Errors
    /// The mask did not allow it, or the matcher failed before.
    pub fn accept(&mut self, token: u32) -> Result<(), OutOfGrammar> {
        let taken = self.matcher.consume_token(token);
        taken.map_err(|error| OutOfGrammar(Refusal::of(&error).why))?;
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

    /// Whether the answer would be valid if it ended here.
    pub fn may_end(&mut self) -> bool {
        self.is_complete() || self.matcher.is_accepting().unwrap_or(false)
    }

    /// The tokens that must come next, whatever is drawn; in order. Their masks cost nothing.
    pub fn forced(&self) -> impl Iterator<Item = u32> {
        self.forced.iter().rev().copied()
    }

    fn force(&mut self) {
        if !self.matcher.is_stopped() {
            self.forced = self.matcher.compute_ff_tokens();
            self.forced.reverse();
        }
    }
}
