//! Tokens that the caller adds to a running answer.

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
