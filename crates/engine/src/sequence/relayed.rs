//! A choice whose tokens another process computes.

use super::Sequence;
use crate::{Token, TopLogprob};

impl Sequence {
    /// Ids of all items of the log: those before the submission are the prompt's last tokens.
    pub(crate) fn log_ids(&self) -> &[u32] {
        let before = usize::try_from(self.log_start).unwrap_or(usize::MAX);
        &self.tokens[self.prompt_tokens.saturating_sub(before)..]
    }

    /// Items of the log that count as accepted by the reader. Grants are added, so the number may be above the length.
    pub(crate) fn accepted(&self) -> u64 {
        let tap = self.writer.tap();
        tap.accepted().saturating_add(tap.granted())
    }

    /// Whether the log has room for another token.
    pub(crate) fn has_room(&self) -> bool {
        self.generated() < self.max_new_tokens
    }

    /// Drops the stop condition and the constraint, which the other process applies.
    pub(crate) fn drop_rules(&mut self) {
        (self.terminator, self.constraint) = (None, None);
    }

    /// Appends a computed token with its alternatives. The caller has checked [`Sequence::has_room`].
    pub(crate) fn append_relayed(&mut self, token: Token, alternatives: &[TopLogprob]) {
        self.append_token(token, alternatives);
    }
}
