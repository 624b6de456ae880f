//! What changes logits before anything is drawn: penalties, bias, and the two masks.

use super::SampleContext;
use crate::Sampling;

/// Whether `logits` would come back as they are, so that no copy is needed. (A constraint is
/// asked by its own `mask`.)
pub(super) fn changes_nothing(draw: &SampleContext<'_>) -> bool {
    let s = draw.sampling;
    let penalties =
        s.repetition_penalty != 1.0 || s.presence_penalty != 0.0 || s.frequency_penalty != 0.0;
    !penalties && s.logit_bias.is_empty() && draw.constraint.is_none() && !masks_eos(draw)
}

/// Counts tokens; all zero between uses. Sized by the vocabulary, once.
pub(super) struct Counts {
    /// By token: 0 = not in the window, else 1 + times generated in the window.
    by_token: Vec<u32>,
    /// Tokens whose count is not 0.
    touched: Vec<u32>,
}

impl Counts {
    pub(super) fn new(vocab: usize) -> Self {
        Self {
            by_token: vec![0; vocab],
            touched: Vec::with_capacity(vocab),
        }
    }

    /// Repetition, then frequency and presence, in llama.cpp's and vLLM's order. Repetition looks at the
    /// whole window, prompt included; the other two at what was generated in it.
    pub(super) fn penalise(&mut self, logits: &mut [f32], draw: &SampleContext<'_>) {
        let s = draw.sampling;
        if s.repetition_penalty == 1.0 && s.presence_penalty == 0.0 && s.frequency_penalty == 0.0 {
            return;
        }
        self.count(draw);
        while let Some(token) = self.touched.pop() {
            let generated = std::mem::take(&mut self.by_token[token as usize]) - 1;
            penalise_one(&mut logits[token as usize], generated, s);
        }
    }

    #[cfg(test)]
    pub(super) fn is_clean(&self) -> bool {
        self.touched.is_empty() && self.by_token.iter().all(|&count| count == 0)
    }

    fn count(&mut self, draw: &SampleContext<'_>) {
        let len = draw.tokens.len();
        let from = match draw.sampling.penalty_window as usize {
            0 => 0,
            window => len.saturating_sub(window),
        };
        for (i, &token) in draw.tokens.iter().enumerate().skip(from) {
            let count = &mut self.by_token[token as usize];
            if *count == 0 {
                *count = 1;
                self.touched.push(token);
            }
            *count += u32::from(i >= draw.prompt_tokens);
        }
    }
}

fn penalise_one(logit: &mut f32, generated: u32, s: &Sampling) {
    *logit = match *logit > 0.0 {
        true => *logit / s.repetition_penalty,
        false => *logit * s.repetition_penalty,
    };
    if generated > 0 {
        *logit -= generated as f32 * s.frequency_penalty + s.presence_penalty;
    }
}

pub(super) fn bias(logits: &mut [f32], s: &Sampling) {
    for &(token, bias) in &s.logit_bias {
        logits[token as usize] += bias;
    }
}

/// Keeps only what the constraint allows. `allowed` is scratch, one bit per token.
pub(super) fn constrain(logits: &mut [f32], draw: &mut SampleContext<'_>, allowed: &mut [u32]) {
    let Some(constraint) = &mut draw.constraint else {
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

/// Forbids the end before `min_tokens`, unless the constraint allows nothing else.
pub(super) fn forbid_eos(logits: &mut [f32], draw: &SampleContext<'_>) {
    if !masks_eos(draw) {
        return;
    }
    let possible =
        |(id, logit): (usize, &f32)| *logit > f32::NEG_INFINITY && !draw.eos.contains(&(id as u32));
    if !logits.iter().enumerate().any(possible) {
        return;
    }
    for &id in draw.eos {
        logits[id as usize] = f32::NEG_INFINITY;
    }
}

fn masks_eos(draw: &SampleContext<'_>) -> bool {
    let generated = draw.tokens.len() - draw.prompt_tokens;
    !draw.sampling.ignore_eos && generated < draw.sampling.min_tokens as usize
}
