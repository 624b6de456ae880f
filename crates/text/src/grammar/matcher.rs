//! Where one answer stands in its grammar.

use super::compiler::first_lines;
use llguidance::{Matcher, TokenParser};

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
    pub(super) fn new(start: TokenParser) -> Self {
        let mut matcher = Self {
            matcher: Matcher::new(Ok(start)),
            forced: Vec::new(),
        };
        matcher.force();
        matcher
    }

    /// Writes which tokens may come next: bit `id % 32` of word `id / 32`. An end-of-sequence token
    /// is among them where the answer is complete. `allowed` is all zero.
    ///
    /// # Errors
    /// This mask costs more than [`super::MASK_FUEL`] or [`super::MASK_ITEMS_MAX`], or the matcher
    /// failed before.
    pub fn mask(&mut self, allowed: &mut [u32]) -> Result<(), OutOfGrammar> {
        if let Some(&token) = self.forced.last() {
            if let Some(word) = allowed.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
            return Ok(());
        }
        let mask = self.matcher.compute_mask_or_eos();
        let mask = mask.map_err(|error| OutOfGrammar(first_lines(&error)))?;
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
        taken.map_err(|error| OutOfGrammar(first_lines(&error)))?;
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
