//! A compiled grammar.

use super::matcher::GrammarMatcher;

/// A compiled grammar. Cheap to start many answers from.
pub struct Grammar {
    /// At the beginning of an answer.
    pub(super) start: GrammarMatcher,
}

impl Grammar {
    /// An answer that has not begun. It shares nothing with others, so that none can slow another
    /// or use up its bounds.
    pub fn matcher(&self) -> GrammarMatcher {
        self.start.again()
    }
}
