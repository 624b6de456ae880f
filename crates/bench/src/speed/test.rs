//! One measurement of a model.

use model::PAGE_TOKENS;
use std::fmt;

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// `tokens` of one sequence, after `context` others.
    Prompt {
        /// Tokens computed.
        tokens: usize,
        /// Positions before them.
        context: usize,
    },
    /// `tokens` steps of `batch` sequences, each after `context` positions.
    Decode {
        /// Steps.
        tokens: usize,
        /// Sequences.
        batch: usize,
        /// Positions before the first step.
        context: usize,
    },
}

impl Test {
    /// Tokens computed in all.
    pub fn tokens(self) -> usize {
        match self {
            Self::Prompt { tokens, .. } => tokens,
            Self::Decode { tokens, batch, .. } => tokens * batch,
        }
    }

    /// Positions before it begins.
    pub fn context(self) -> usize {
        match self {
            Self::Prompt { context, .. } | Self::Decode { context, .. } => context,
        }
    }

    /// Sequences.
    pub fn batch(self) -> usize {
        match self {
            Self::Prompt { .. } => 1,
            Self::Decode { batch, .. } => batch,
        }
    }

    /// Positions that one of its sequences has in the end.
    pub fn positions(self) -> usize {
        match self {
            Self::Prompt { tokens, context }
            | Self::Decode {
                tokens, context, ..
            } => context + tokens,
        }
    }

    /// Pages of each sequence.
    pub(super) fn pages_each(self) -> usize {
        self.positions().div_ceil(PAGE_TOKENS)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt { tokens, .. } => write!(f, "prompt {tokens}")?,
            Self::Decode { tokens, batch, .. } => write!(f, "decode {tokens} x {batch}")?,
        }
        match self.context() {
            0 => Ok(()),
            context => write!(f, " @ {context}"),
        }
    }
}
