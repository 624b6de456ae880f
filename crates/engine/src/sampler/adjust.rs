//! Changes to the logits before sampling: penalties, bias, and the two masks.
//!
//! DRY ("don't repeat yourself"): a penalty for each token that would prolong a repetition of earlier tokens.
//!
//! A position before which the last tokens of the sequence already stood makes the token that followed there a
//! continuation of a repetition. With `n` tokens in common, `n` at least `allowed_length`, that token's logit is
//! reduced by `multiplier * base ^ (n - allowed_length)`, the longest repetition of each token alone. No repetition
//! reaches back over a sequence breaker. The penalty is that of llama.cpp (proposed by P. E. Weidmann, 2024).
//!
//! The lengths come from the Z function of the reversed tokens: linear time in the window.

#[cfg(test)]
mod tests;

use super::SampleContext;
use crate::media::is_media;
use crate::{DRY_WINDOW_MAX, SamplingParams};

/// Whether the logits stay as they are, so that no copy is needed. False with a constraint, because that
/// depends on the constraint's mask.
pub(super) fn changes_nothing(context: &SampleContext<'_>) -> bool {
    let s = context.sampling;
    let penalties = Penalties::of(s).is_some() || s.dry_multiplier > 0.0;
    !penalties && s.logit_bias.is_empty() && context.constraint.is_none() && !masks_eos(context)
}

/// A number for each token: a count in the penalty window, or the length of a repetition; all zero between uses. Sized by the vocabulary, once.
pub(super) struct TokenCounts {
    /// By token: 0 = not in the window, else 1 + times generated in the window.
    by_token: Vec<u32>,
    /// Tokens whose count is not 0.
    touched: Vec<u32>,
}

impl TokenCounts {
    pub(super) fn new(vocab: usize) -> Self {
        Self {
            by_token: vec![0; vocab],
            touched: Vec::with_capacity(vocab),
        }
    }

    /// Applies the repetition penalty, then frequency and presence, in llama.cpp's and vLLM's order. Repetition
    /// counts the whole window, prompt included; the other two the generated part of the window.
    pub(super) fn apply_penalties(&mut self, logits: &mut [f32], context: &SampleContext<'_>) {
        let Some(penalties) = Penalties::of(context.sampling) else {
            return;
        };
        self.count_window(context);
        while let Some((token, generated)) = self.pop() {
            penalties.apply(&mut logits[token as usize], generated);
        }
    }

    /// Notes a length of a token, of which the greatest is kept.
    pub(super) fn raise(&mut self, token: u32, length: u32) {
        let noted = &mut self.by_token[token as usize];
        if *noted == 0 {
            self.touched.push(token);
        }
        // 0 is a length, too.
        *noted = (*noted).max(length + 1);
    }

    /// Takes a token with its count, or its greatest length.
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        let token = self.touched.pop()?;
        let noted = std::mem::take(&mut self.by_token[token as usize]);
        Some((token, noted - 1))
    }

    #[cfg(test)]
    pub(super) fn is_clean(&self) -> bool {
        self.touched.is_empty() && self.by_token.iter().all(|&count| count == 0)
    }

    /// Counts the tokens of the penalty window: how often each was generated there.
    pub(super) fn count_window(&mut self, context: &SampleContext<'_>) {
        let len = context.tokens.len();
        let from = match context.sampling.penalty_window as usize {
            0 => 0,
            window => len.saturating_sub(window),
        };
        let tokens = context.tokens.iter().enumerate().skip(from);
        for (i, &token) in tokens.filter(|(_, token)| !is_media(**token)) {
            let count = &mut self.by_token[token as usize];
            if *count == 0 {
                *count = 1;
                self.touched.push(token);
            }
            *count += u32::from(i >= context.prompt_tokens);
        }
    }
}

/// The penalties of a token that is in the window.
#[derive(Clone, Copy)]
pub(super) struct Penalties {
    pub(super) repetition: f32,
    pub(super) frequency: f32,
    pub(super) presence: f32,
}

impl Penalties {
    /// `None`: they are off.
    pub(super) fn of(s: &SamplingParams) -> Option<Self> {
        let is_on =
            s.repetition_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
        is_on.then_some(Self {
            repetition: s.repetition_penalty,
            frequency: s.frequency_penalty,
            presence: s.presence_penalty,
        })
    }

    /// Lowers the logit of a token that was generated so many times in the window.
    pub(super) fn apply(self, logit: &mut f32, generated: u32) {
        *logit = if *logit > 0.0 {
            *logit / self.repetition
        } else {
            *logit * self.repetition
        };
        if generated > 0 {
            *logit -= generated as f32 * self.frequency + self.presence;
        }
    }
}

/// Adds the logit bias.
pub(super) fn add_bias(logits: &mut [f32], bias: &[(u32, f32)]) {
    for &(token, bias) in bias {
        logits[token as usize] += bias;
    }
}

/// Keeps only the tokens that the constraint allows. `allowed` is scratch, one bit per token.
pub(super) fn apply_constraint(
    logits: &mut [f32],
    context: &mut SampleContext<'_>,
    allowed: &mut [u32],
) {
    let Some(constraint) = &mut context.constraint else {
        return;
    };
    allowed.fill(0);
    if constraint.mask(allowed) {
        keep_allowed(logits, allowed);
    }
}

/// Keeps only these tokens, one bit per token.
pub(super) fn keep_allowed(logits: &mut [f32], allowed: &[u32]) {
    for (logits, &word) in logits.chunks_mut(32).zip(allowed) {
        if word == u32::MAX {
            continue;
        }
        for (bit, logit) in logits.iter_mut().enumerate() {
            if word >> bit & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

/// Masks these tokens, unless no other token is possible.
pub(super) fn forbid(logits: &mut [f32], ids: &[u32]) {
    let possible =
        |(id, logit): (usize, &f32)| *logit > f32::NEG_INFINITY && !ids.contains(&(id as u32));
    if !logits.iter().enumerate().any(possible) {
        return;
    }
    for &id in ids {
        logits[id as usize] = f32::NEG_INFINITY;
    }
}

/// Whether end-of-sequence tokens are masked: before `min_tokens`.
pub(super) fn masks_eos(context: &SampleContext<'_>) -> bool {
    let generated = context.tokens.len() - context.prompt_tokens;
    !context.sampling.ignore_eos && generated < context.sampling.min_tokens as usize
}

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
            let token = tokens[tokens.len() - distance];
            if length >= allowed && !is_media(token) {
                counts.raise(token, length);
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
