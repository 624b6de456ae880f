//! What one step computes.

use model::PageId;
use std::ops::Range;

/// Consecutive positions of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Where the sequence stands in the table of sequences.
    pub(crate) key: usize,
    /// Positions to compute.
    pub(crate) positions: Range<usize>,
    /// Whether a token is drawn after the last of them.
    pub(crate) draws: bool,
}

/// A page that is copied before its new owner writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageCopy {
    /// The new owner.
    pub(crate) key: usize,
    pub(crate) from: PageId,
    pub(crate) to: PageId,
}

/// What one step computes. Reused from step to step.
pub(crate) struct Plan {
    /// In this order, before the forward pass: a page may be copied and then written anew.
    pub(crate) copies: Vec<PageCopy>,
    /// Decodes first, then prefill.
    pub(crate) spans: Vec<Planned>,
    /// How many of them are decodes.
    pub(crate) decodes: usize,
}

impl Plan {
    pub(crate) fn new(sequences_max: usize) -> Self {
        Self {
            copies: Vec::with_capacity(sequences_max),
            spans: Vec::with_capacity(sequences_max),
            decodes: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.copies.clear();
        self.spans.clear();
        self.decodes = 0;
    }

    pub(crate) fn rows(&self) -> usize {
        self.spans.iter().map(|span| span.positions.len()).sum()
    }
}
