//! A sequence's draft tokens.

use super::DraftPageTable;
use super::profitability::DraftHistory;

/// A sequence's draft tokens in the step that is being planned, and the record of earlier ones.
pub(crate) struct DraftState {
    /// Empty, or the sequence's last token and the draft tokens: the rows of the verification.
    rows: Vec<u32>,
    /// Whether the draft tokens are forced: the constraint allows no others.
    is_forced: bool,
    /// Draft tokens that the draft model may propose in this step.
    pub(crate) proposal_max: usize,
    /// Acceptance of earlier draft tokens.
    pub(crate) history: DraftHistory,
    /// Keys and values in the draft model.
    pub(crate) table: DraftPageTable,
}

impl DraftState {
    /// With capacity for `tokens_max` draft or forced tokens and `pages_max` pages of the draft model.
    pub(crate) fn new(tokens_max: usize, pages_max: usize) -> Self {
        Self {
            rows: Vec::with_capacity(if tokens_max > 0 { 1 + tokens_max } else { 0 }),
            is_forced: false,
            proposal_max: 0,
            history: DraftHistory::default(),
            table: DraftPageTable::new(pages_max),
        }
    }

    /// Removes all draft tokens.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.is_forced = false;
        self.proposal_max = 0;
    }

    /// The draft tokens.
    pub(crate) fn tokens(&self) -> &[u32] {
        self.rows.get(1..).unwrap_or_default()
    }

    /// The sequence's last token and the draft tokens; empty without draft tokens.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    pub(crate) fn is_forced(&self) -> bool {
        self.is_forced
    }

    /// Marks the draft tokens as forced, if there are any.
    pub(crate) fn mark_forced(&mut self) {
        self.is_forced = !self.rows.is_empty();
    }

    /// Replaces the draft tokens by those that `fill` appends after the sequence's last token.
    pub(crate) fn fill(&mut self, last: Option<&u32>, fill: impl FnOnce(&mut Vec<u32>)) {
        self.rows.clear();
        self.rows.extend(last);
        fill(&mut self.rows);
        self.drop_lone_token();
    }

    /// Adds a draft token; `last` is the sequence's last token.
    pub(crate) fn push(&mut self, last: u32, draft: u32) {
        if self.rows.is_empty() {
            self.rows.push(last);
        }
        self.rows.push(draft);
    }

    /// Keeps the first `drafts` draft tokens.
    pub(crate) fn truncate(&mut self, drafts: usize) {
        self.rows.truncate(1 + drafts);
        self.drop_lone_token();
    }

    /// Removes the first end token and all tokens after the end token: these are never sampled, and the end
    /// token is sampled from the preceding row.
    pub(crate) fn cut_at(&mut self, eos: &[u32]) {
        if let Some(end) = self.tokens().iter().position(|token| eos.contains(token)) {
            self.truncate(end);
        }
    }

    /// Without draft tokens there is nothing to verify.
    fn drop_lone_token(&mut self) {
        if self.rows.len() == 1 {
            self.rows.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_empty_without_draft_tokens() {
        let mut drafts = DraftState::new(4, 0);
        drafts.fill(Some(&7), |_| {});
        assert!(drafts.rows().is_empty());
        drafts.fill(Some(&7), |into| into.extend([1, 2, 3, 4]));
        assert_eq!(drafts.rows(), [7, 1, 2, 3, 4]);
        drafts.cut_at(&[3]);
        assert_eq!(drafts.tokens(), [1, 2]);
        drafts.mark_forced();
        assert!(drafts.is_forced());
        drafts.truncate(0);
        assert!(drafts.rows().is_empty() && drafts.tokens().is_empty());
        drafts.push(7, 5);
        assert_eq!(drafts.rows(), [7, 5]);
    }
}
