//! DRY ("don't repeat yourself"): a penalty for each token that would prolong a repetition of earlier tokens.
//!
//! A position before which the last tokens of the sequence already stood makes the token that followed there a
//! continuation of a repetition. With `n` tokens in common, `n` at least `allowed_length`, that token's logit is
//! reduced by `multiplier * base ^ (n - allowed_length)`, the longest repetition of each token alone. No repetition
//! reaches back over a sequence breaker. The penalty is that of llama.cpp (proposed by P. E. Weidmann, 2024).
//!
//! The lengths come from the Z function of the reversed tokens: linear time in the window.

use super::SampleContext;
use super::adjust::TokenCounts;
use crate::DRY_WINDOW_MAX;

/// Largest reduction of a logit: finite, so that a token stays possible where there is no other.
const PENALTY_MAX: f32 = 1e30;

/// Scratch; sized at the first use.
pub(super) struct Repetitions {
    /// By distance from the end: how many tokens before that place equal the last ones of the sequence.
    lengths: Vec<u32>,
}

impl Repetitions {
    pub(super) fn new() -> Self {
        Self {
            lengths: Vec::new(),
        }
    }

    /// Applies the penalty to the logits.
    pub(super) fn apply_penalty(
        &mut self,
        logits: &mut [f32],
        counts: &mut TokenCounts,
        context: &SampleContext<'_>,
    ) {
        let s = context.sampling;
        if s.dry_multiplier <= 0.0 {
            return;
        }
        let window = match s.dry_window as usize {
            0 => DRY_WINDOW_MAX,
            window => window.min(DRY_WINDOW_MAX),
        };
        let tokens = &context.tokens[context.tokens.len().saturating_sub(window)..];
        let allowed = s.dry_allowed_length;
        let limit = s.dry_breakers.tokens_after_last(tokens);
        if limit < allowed as usize || tokens.len() <= allowed as usize {
            return;
        }
        self.measure(tokens);
        for (distance, &common) in self.lengths.iter().enumerate().skip(1) {
            let length = common.min(u32::try_from(limit).unwrap_or(u32::MAX));
            if length >= allowed {
                counts.raise(tokens[tokens.len() - distance], length);
            }
        }
        while let Some((token, length)) = counts.pop() {
            let exponent = f64::from(length - allowed);
            let penalty = f64::from(s.dry_multiplier) * f64::from(s.dry_base).powf(exponent);
            logits[token as usize] -= (penalty as f32).min(PENALTY_MAX);
        }
    }

    /// The Z function of the reversed tokens: at `d`, the number of tokens that the sequence and the sequence without its
    /// last `d` tokens have in common at their ends.
    fn measure(&mut self, tokens: &[u32]) {
        if self.lengths.capacity() == 0 {
            self.lengths.reserve_exact(DRY_WINDOW_MAX);
        }
        let n = tokens.len();
        let reversed = |i: usize| tokens[n - 1 - i];
        self.lengths.clear();
        self.lengths.resize(n, 0);
        // The match that reaches furthest begins at `left` and ends before `right`.
        let (mut left, mut right) = (0, 0);
        for i in 1..n {
            let mut length = if i < right {
                (self.lengths[i - left] as usize).min(right - i)
            } else {
                0
            };
            while i + length < n && reversed(length) == reversed(i + length) {
                length += 1;
            }
            if i + length > right {
                (left, right) = (i, i + length);
            }
            self.lengths[i] = length as u32;
        }
    }
}

#[cfg(test)]
mod tests;
