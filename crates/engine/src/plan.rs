//! The work of one step.

use crate::terms::Age;
use model::PageId;
use std::ops::Range;

/// Consecutive positions of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSpan {
    /// Key of the sequence.
    pub(crate) key: usize,
    /// Age of the sequence, which may have ended when the results come.
    pub(crate) age: Age,
    /// Positions to compute.
    pub(crate) positions: Range<usize>,
    /// Whether a token is sampled after the last of them.
    pub(crate) is_sampled: bool,
}

/// A shared page that is copied before the new owner writes to the copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageCopy {
    /// Key of the new owner.
    pub(crate) key: usize,
    pub(crate) from: PageId,
    pub(crate) to: PageId,
}

/// The work of one step. Reused from step to step.
pub(crate) struct Plan {
    /// In this order, before the forward pass: a page may be copied and then written anew.
    pub(crate) copies: Vec<PageCopy>,
    /// Decodes first, then prefill.
    pub(crate) spans: Vec<PlannedSpan>,
    /// How many spans are decodes.
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
