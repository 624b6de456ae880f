//! One test of a speed measurement.

use cpu::PAGE_TOKENS;
use std::fmt;

/// A prefill or decode test: one line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedTest {
    /// Prefill of `tokens` tokens after `context` positions.
    Prompt {
        /// Tokens computed.
        tokens: usize,
        /// Positions before the prompt.
        context: usize,
    },
    /// `tokens` decode steps of `batch` sequences after `context` positions.
    Decode {
        /// Decode steps.
        tokens: usize,
        /// Batch size.
        batch: usize,
        /// Positions before the first step.
        context: usize,
    },
}

impl SpeedTest {
    /// Tokens computed in one round.
    pub fn tokens(self) -> usize {
        match self {
            Self::Prompt { tokens, .. } => tokens,
            Self::Decode { tokens, batch, .. } => tokens * batch,
        }
    }

    /// Positions before the test.
    pub fn context(self) -> usize {
        match self {
            Self::Prompt { context, .. } | Self::Decode { context, .. } => context,
        }
    }

    /// Batch size.
    pub fn batch(self) -> usize {
        match self {
            Self::Prompt { .. } => 1,
            Self::Decode { batch, .. } => batch,
        }
    }

    /// Positions of each sequence at the end.
    pub fn positions(self) -> usize {
        match self {
            Self::Prompt { tokens, context }
            | Self::Decode {
                tokens, context, ..
            } => context + tokens,
        }
    }

    /// KV pages of each sequence.
    pub(super) fn pages_each(self) -> usize {
        self.positions().div_ceil(PAGE_TOKENS)
    }
}

impl fmt::Display for SpeedTest {
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
