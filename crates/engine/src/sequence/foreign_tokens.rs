//! Tokens that were not sampled here: those that the caller adds to a running answer, and those that another process computes.

use super::Sequence;
use crate::{Token, TopLogprob};
use stream::End;

impl Sequence {
    /// Appends `ids` as far as the constraint allows them. Returns how many were appended and the end, if
    /// they complete the answer.
    ///
    /// Calls the caller's constraint and terminator, which may panic.
    pub(crate) fn inject(
        &mut self,
        ids: &[u32],
        vocab: usize,
        alternatives: usize,
    ) -> (usize, Option<End>) {
        for (count, &id) in ids.iter().enumerate() {
            if !self.allows(id, vocab) {
                return (count, None);
            }
            let logprob = f32::NAN;
            let top = vec![TopLogprob { id, logprob }; alternatives];
            self.append_token(Token { id, logprob }, &top);
            if let Some(end) = self.check_stop(id) {
                return (count + 1, Some(end));
            }
        }
        (ids.len(), None)
    }

    fn allows(&mut self, id: u32, vocab: usize) -> bool {
        let Some(constraint) = &mut self.constraint else {
            return true;
        };
        let mut allowed = vec![0; vocab.div_ceil(32)];
        let is_restricted = constraint.mask(&mut allowed);
        !is_restricted || allowed[id as usize / 32] >> (id % 32) & 1 == 1
    }
}

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
