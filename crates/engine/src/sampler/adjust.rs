//! Changes to the logits before sampling: penalties, bias, and the two masks.

use super::SampleContext;
use crate::SamplingParams;

/// Whether the logits stay as they are, so that no copy is needed. False with a constraint, because that
/// depends on the constraint's mask.
pub(super) fn changes_nothing(context: &SampleContext<'_>) -> bool {
    let s = context.sampling;
    let penalties =
        s.repetition_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
    let penalties = penalties || s.dry_multiplier > 0.0;
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
        let s = context.sampling;
        if s.repetition_penalty == 1.0 && s.presence_penalty == 0.0 && s.frequency_penalty == 0.0 {
            return;
        }
        self.count_window(context);
        while let Some(token) = self.touched.pop() {
            let generated = std::mem::take(&mut self.by_token[token as usize]) - 1;
            penalize_token(&mut logits[token as usize], generated, s);
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

    /// Takes a token with its greatest length.
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        let token = self.touched.pop()?;
        let noted = std::mem::take(&mut self.by_token[token as usize]);
        Some((token, noted - 1))
    }

    #[cfg(test)]
    pub(super) fn is_clean(&self) -> bool {
        self.touched.is_empty() && self.by_token.iter().all(|&count| count == 0)
    }

    fn count_window(&mut self, context: &SampleContext<'_>) {
        let len = context.tokens.len();
        let from = match context.sampling.penalty_window as usize {
            0 => 0,
            window => len.saturating_sub(window),
        };
        for (i, &token) in context.tokens.iter().enumerate().skip(from) {
            let count = &mut self.by_token[token as usize];
            if *count == 0 {
                *count = 1;
                self.touched.push(token);
            }
            *count += u32::from(i >= context.prompt_tokens);
        }
    }
}

fn penalize_token(logit: &mut f32, generated: u32, s: &SamplingParams) {
    *logit = if *logit > 0.0 {
        *logit / s.repetition_penalty
    } else {
        *logit * s.repetition_penalty
    };
    if generated > 0 {
        *logit -= generated as f32 * s.frequency_penalty + s.presence_penalty;
    }
}

/// Adds the logit bias.
pub(super) fn add_bias(logits: &mut [f32], s: &SamplingParams) {
    for &(token, bias) in &s.logit_bias {
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
    if !constraint.mask(allowed) {
        return;
    }
    for (logits, &word) in logits.chunks_mut(32).zip(allowed.iter()) {
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

/// Masks end-of-sequence tokens before `min_tokens`, unless no other token is possible.
pub(super) fn forbid_eos(logits: &mut [f32], context: &SampleContext<'_>) {
    if !masks_eos(context) {
        return;
    }
    let possible = |(id, logit): (usize, &f32)| {
        *logit > f32::NEG_INFINITY && !context.eos.contains(&(id as u32))
    };
    if !logits.iter().enumerate().any(possible) {
        return;
    }
    for &id in context.eos {
        logits[id as usize] = f32::NEG_INFINITY;
    }
}

fn masks_eos(context: &SampleContext<'_>) -> bool {
    let generated = context.tokens.len() - context.prompt_tokens;
    !context.sampling.ignore_eos && generated < context.sampling.min_tokens as usize
}
