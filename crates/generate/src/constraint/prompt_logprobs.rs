//! Prompts with tokens that are emitted as the answer's first, with log-probabilities (`echo` with `logprobs`).
//!
//! The engine gets the first token of such a prompt alone; the others are forced tokens of the answer. So several are
//! computed in one pass, and they are logged, streamed and resumed as any answer.

use crate::error::ApiError;
use engine::{Constraint, StopCondition};

/// Log-probability of a prompt's first token, which has no context.
pub const UNSCORED: f32 = f32::NAN;

/// Forces the prompt's other tokens, then applies the answer's own constraint.
pub(crate) struct ForcedTokens {
    /// Tokens that are left, the next one last.
    left: Vec<u32>,
    then: Option<Box<dyn Constraint>>,
}

impl ForcedTokens {
    /// A constraint that forces `prompt`, which is without the first token.
    pub(crate) fn new(prompt: &[u32], then: Option<Box<dyn Constraint>>) -> Self {
        Self {
            left: prompt.iter().rev().copied().collect(),
            then,
        }
    }
}

impl Constraint for ForcedTokens {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        match (self.left.last(), &mut self.then) {
            (Some(&next), _) => {
                allowed[next as usize / 32] |= 1 << (next % 32);
                true
            }
            (None, Some(then)) => then.mask(allowed),
            (None, None) => false,
        }
    }

    fn accept(&mut self, token: u32) {
        match (self.left.pop(), &mut self.then) {
            (None, Some(then)) => then.accept(token),
            (next, _) => debug_assert!(next.is_none_or(|next| next == token), "it was prescribed"),
        }
    }

    fn replay(&mut self, tokens: &[u32]) {
        let forced = self.left.len().min(tokens.len());
        self.left.truncate(self.left.len() - forced);
        if let Some(then) = &mut self.then {
            then.replay(&tokens[forced..]);
        }
    }

    fn is_complete(&self) -> bool {
        self.left.is_empty() && self.then.as_ref().is_some_and(|then| then.is_complete())
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        let some = self.left.len().min(most);
        into.extend(self.left.iter().rev().take(some));
        if let Some(then) = self.then.as_ref().filter(|_| some == self.left.len()) {
            then.forced(most - some, into);
        }
    }
}

/// A stop condition that skips the prompt's other tokens.
pub(crate) struct SkipPrompt {
    left: usize,
    then: Box<dyn StopCondition>,
}

impl SkipPrompt {
    /// A stop condition after this number of tokens.
    pub(crate) fn new(left: usize, then: Box<dyn StopCondition>) -> Self {
        Self { left, then }
    }
}

impl StopCondition for SkipPrompt {
    fn push(&mut self, token: u32) -> Option<u16> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        self.then.push(token)
    }
}

/// Tokens that the engine is to generate: the prompt's others and `wanted` more. At least one.
pub(crate) fn answer_tokens(
    prompt: &[u32],
    wanted: usize,
    eos: Option<&[u32]>,
) -> Result<usize, ApiError> {
    let refuse = |words: String| Err(ApiError::field("prompt", "invalid_value", words));
    let ends = |id: &&u32| eos.is_some_and(|eos| eos.contains(id));
    if let Some(id) = prompt[1..].iter().find(ends) {
        return refuse(format!(
            "prompt: has token {id}, which ends an answer; with log-probabilities such a prompt can be echoed with ignore_eos only"
        ));
    }
    match prompt.len() - 1 + wanted {
        0 => refuse("prompt: must have at least two tokens where max_tokens is 0".to_owned()),
        all => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Always allows one token, and records what it accepted.
    struct Only(u32, Vec<u32>);

    impl Constraint for Only {
        fn mask(&mut self, allowed: &mut [u32]) -> bool {
            allowed[self.0 as usize / 32] |= 1 << (self.0 % 32);
            true
        }
        fn accept(&mut self, token: u32) {
            self.1.push(token);
        }
        fn is_complete(&self) -> bool {
            self.1.len() == 2
        }
        fn forced(&self, most: usize, into: &mut Vec<u32>) {
            into.extend(std::iter::repeat_n(self.0, most.min(2 - self.1.len())));
        }
    }

    fn allowed(constraint: &mut ForcedTokens) -> Option<Vec<u32>> {
        let mut words = [0; 3];
        let bound = constraint.mask(&mut words);
        bound.then(|| {
            (0..96)
                .filter(|id| words[*id as usize / 32] >> (id % 32) & 1 == 1)
                .collect()
        })
    }

    fn forced(constraint: &ForcedTokens, most: usize) -> Vec<u32> {
        let mut run = Vec::new();
        constraint.forced(most, &mut run);
        run
    }

    #[test]
    fn prompt_tokens_are_forced_then_free() {
        let mut prescribed = ForcedTokens::new(&[7, 64, 7], None);
        assert_eq!(forced(&prescribed, 2), [7, 64]);
        assert_eq!(forced(&prescribed, 9), [7, 64, 7]);
        for token in [7, 64, 7] {
            assert_eq!(allowed(&mut prescribed), Some(vec![token]));
            assert!(!prescribed.is_complete());
            prescribed.accept(token);
        }
        assert_eq!(allowed(&mut prescribed), None);
        assert!(!prescribed.is_complete() && forced(&prescribed, 9).is_empty());
        prescribed.accept(1);
    }

    #[test]
    fn own_constraint_begins_after_the_prompt() {
        let mut prescribed = ForcedTokens::new(&[5], Some(Box::new(Only(3, Vec::new()))));
        assert_eq!(forced(&prescribed, 1), [5]);
        assert_eq!(forced(&prescribed, 9), [5, 3, 3]);
        for token in [5, 3, 3] {
            assert!(!prescribed.is_complete());
            assert_eq!(allowed(&mut prescribed), Some(vec![token]));
            prescribed.accept(token);
        }
        assert!(prescribed.is_complete());
    }

    #[test]
    fn unscorable_prompt_is_rejected_by_field() {
        assert_eq!(answer_tokens(&[1, 2, 3], 4, Some(&[9])).ok(), Some(6));
        assert_eq!(
            answer_tokens(&[9, 2], 0, Some(&[9])).ok(),
            Some(1),
            "the first is not drawn"
        );
        assert_eq!(
            answer_tokens(&[1, 9], 1, None).ok(),
            Some(2),
            "ends are ignored"
        );
        let refused = |prompt: &[u32], wanted| answer_tokens(prompt, wanted, Some(&[9])).err();
        for (prompt, wanted, word) in [(&[1, 9, 2][..], 4, "token 9"), (&[1], 0, "two tokens")] {
            let error = refused(prompt, wanted).expect("a refusal");
            assert!(error.message.contains(word), "{}", error.message);
        }
    }
}
