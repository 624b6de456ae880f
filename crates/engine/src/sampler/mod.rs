//! From a row of logits to a token.
//!
//! The order of operations:
//!
//! 1. repetition, frequency and presence penalties;
//! 2. logit bias;
//! 3. the constraint's mask;
//! 4. end-of-sequence masked below `min_tokens` (unless the constraint allows nothing else);
//! 5. temperature; 0 takes the most likely token, the lowest id where equal, and stops here;
//! 6. `top_k`, `typical_p`, `top_p`, `min_p`, each on what the one before left, renormalised;
//! 7. a draw.
//!
//! Temperature before the filters is OpenAI's, Hugging Face's and vLLM's convention; the order of
//! the filters among themselves is llama.cpp's (which by default applies temperature after them:
//! with temperature 1 the two agree). Penalties apply as in llama.cpp and vLLM. Temperature does
//! not change who is in the `k` most likely, so `top_k` is cut first and cheaply.
//!
//! A logit of minus infinity means "never"; NaN and plus infinity are faults of the model.

mod adjust;
mod candidates;
mod context;
mod logprobs;
mod random;
mod row;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

use crate::{Sampling, Token, TopLogprob};
use adjust::Counts;
use candidates::Candidates;
pub(crate) use context::SampleContext;
#[cfg(test)]
pub(crate) use random::uniform;

/// Scratch for one row at a time, sized by the vocabulary: 49 bytes per entry.
pub(crate) struct Sampler {
    work: Vec<f32>,
    counts: Counts,
    allowed: Vec<u32>,
    candidates: Candidates,
    top: Vec<TopLogprob>,
}

impl Sampler {
    pub(crate) fn new(vocab: usize) -> Self {
        Self {
            work: Vec::with_capacity(vocab),
            counts: Counts::new(vocab),
            allowed: vec![0; vocab.div_ceil(32)],
            candidates: Candidates::new(vocab),
            top: Vec::with_capacity(crate::TOP_LOGPROBS_MAX as usize),
        }
    }

    /// Draws the next token from sound logits; its alternatives, where asked for, are in
    /// [`Sampler::top`] after. `None`: the constraint allows nothing that the model can give.
    pub(crate) fn draw(&mut self, logits: &[f32], draw: SampleContext<'_>) -> Option<Token> {
        let sampling = draw.sampling;
        let id = self.guess(logits, draw)?;
        Some(self.report(logits, id, sampling))
    }

    /// The token that [`Sampler::draw`] draws, without what is reported of it.
    pub(crate) fn guess(&mut self, logits: &[f32], mut draw: SampleContext<'_>) -> Option<u32> {
        if adjust::changes_nothing(&draw) {
            return choose(&mut self.candidates, logits, &draw);
        }
        self.work.clear();
        self.work.extend_from_slice(logits);
        self.counts.penalise(&mut self.work, &draw);
        adjust::bias(&mut self.work, draw.sampling);
        adjust::constrain(&mut self.work, &mut draw, &mut self.allowed);
        adjust::forbid_eos(&mut self.work, &draw);
        choose(&mut self.candidates, &self.work, &draw)
    }

    /// Alternatives of the token drawn last, most likely first.
    pub(crate) fn top(&self) -> &[TopLogprob] {
        &self.top
    }

    fn report(&mut self, logits: &[f32], id: u32, sampling: &Sampling) -> Token {
        self.top.clear();
        if !sampling.logprobs && sampling.top_logprobs == 0 {
            return Token {
                id,
                logprob: f32::NAN,
            };
        }
        let norm = row::log_sum_exp(logits);
        if sampling.top_logprobs > 0 {
            logprobs::top(logits, norm, sampling.top_logprobs as usize, &mut self.top);
        }
        let logprob = match sampling.logprobs {
            true => (f64::from(logits[id as usize]) - norm) as f32,
            false => f32::NAN,
        };
        Token { id, logprob }
    }
}

/// Whether a row is free of NaN and plus infinity, and something is possible.
pub(crate) fn is_sound(logits: &[f32]) -> bool {
    // `l < inf` is false of NaN too.
    let below = logits
        .iter()
        .fold(true, |all, &l| all & (l < f32::INFINITY));
    below && logits.iter().any(|&l| l > f32::NEG_INFINITY)
}

fn choose(candidates: &mut Candidates, logits: &[f32], draw: &SampleContext<'_>) -> Option<u32> {
    let s = draw.sampling;
    if s.temperature == 0.0 {
        return row::most_likely(logits);
    }
    let index = draw.tokens.len() - draw.prompt_tokens;
    let place = random::uniform(s.seed, draw.choice, index as u64);
    let whole = if s.top_k == 0 && s.typical_p >= 1.0 {
        // Nearly all tokens are too unlikely for what follows: they need not be candidates.
        let whole = candidates.weigh_row(logits, s.temperature);
        if s.top_p >= 1.0 && s.min_p <= 0.0 {
            return candidates.draw_of_row(whole.mass * place);
        }
        // The most likely has weight 1, and is left by `top_p`.
        candidates.gather_weighed(logits, whole.least(s.top_p).max(s.min_p));
        whole
    } else {
        candidates.gather(logits, s.top_k);
        candidates.weigh(s.temperature);
        candidates.typical_p(s.typical_p);
        candidates.whole()
    };
    candidates.top_p(s.top_p, &whole);
    candidates.min_p(s.min_p);
    candidates.draw(place)
}
