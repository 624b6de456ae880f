//! The verification of a sequence's draft tokens in one step.

use super::DraftState;
use crate::Progress;
use std::sync::Arc;

/// How many of a sequence's draft tokens were sampled. Outlives the sequence, which may end on the way.
#[derive(Default)]
pub(crate) struct Verification {
    is_forced: bool,
    drafted: usize,
    accepted: usize,
    progress: Option<Arc<Progress>>,
}

impl Verification {
    pub(crate) fn of(drafts: &DraftState, progress: &Arc<Progress>) -> Self {
        let drafted = drafts.tokens().len();
        Self {
            is_forced: drafts.is_forced(),
            drafted,
            accepted: 0,
            progress: (drafted > 0).then(|| Arc::clone(progress)),
        }
    }

    /// Compares a row's draft token with the token that was sampled and appended. Returns whether they are equal,
    /// so that the next row's logits are valid.
    pub(crate) fn accept(&mut self, draft: Option<u32>, appended: Option<u32>) -> bool {
        let is_equal = draft.is_some() && appended == draft;
        self.accepted += usize::from(is_equal);
        is_equal
    }

    pub(crate) fn is_forced(&self) -> bool {
        self.is_forced
    }

    pub(crate) fn drafted(&self) -> usize {
        self.drafted
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted
    }

    /// Adds the draft tokens to the request's counters.
    pub(crate) fn record_progress(&self) {
        if let Some(progress) = &self.progress {
            progress.add_drafts(self.drafted, self.accepted);
        }
    }
}
