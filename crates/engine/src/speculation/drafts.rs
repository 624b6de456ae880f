//! What a sequence has for its guesses.

use super::Table;
use super::worth::Guess;

/// A sequence's guesses in the step being planned, and what is known of earlier ones.
pub(crate) struct Drafts {
    /// Empty, or the sequence's last token and the tokens guessed to follow: the rows of its run.
    pub(crate) run: Vec<u32>,
    /// Those tokens are no guesses: nothing else may follow.
    pub(crate) forced: bool,
    /// Tokens the draft model may guess in this step.
    pub(crate) most: usize,
    /// How right its guesses were.
    pub(crate) guess: Guess,
    /// What the draft model has of it.
    pub(crate) table: Table,
}

impl Drafts {
    /// Room for runs of so many guesses or forced tokens, and for so many pages of the draft model.
    pub(crate) fn new(tokens_max: usize, pages_max: usize) -> Self {
        Self {
            run: Vec::with_capacity(if tokens_max > 0 { 1 + tokens_max } else { 0 }),
            forced: false,
            most: 0,
            guess: Guess::default(),
            table: Table::new(pages_max),
        }
    }

    /// Nothing is guessed.
    pub(crate) fn clear(&mut self) {
        self.run.clear();
        self.forced = false;
        self.most = 0;
    }

    /// The tokens guessed to follow.
    pub(crate) fn guessed(&self) -> &[u32] {
        self.run.get(1..).unwrap_or_default()
    }

    /// Keeps the first guesses only.
    pub(crate) fn keep(&mut self, guesses: usize) {
        match guesses {
            0 => self.run.clear(),
            guesses => self.run.truncate(1 + guesses),
        }
    }
}
