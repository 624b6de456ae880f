//! Tokens that the caller adds to an answer.

use super::Sequence;
use crate::{Token, TopLogprob};
use stream::End;

impl Sequence {
    /// Puts these in: how many there was room for, and whether that ends it.
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
            self.append(Token { id, logprob }, &top);
            if let Some(end) = self.stops(id) {
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
        let masks = constraint.mask(&mut allowed);
        !masks || allowed[id as usize / 32] >> (id % 32) & 1 == 1
    }
}
