//! A compiled grammar.

use super::grammar_matcher::GrammarMatcher;

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
