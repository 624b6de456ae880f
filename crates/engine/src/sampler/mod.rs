//! From a row of logits to a token.
//!
//! Order of operations:
//!
//! 1. repetition, frequency and presence penalties, then DRY;
//! 2. logit bias;
//! 3. the constraint's mask;
//! 4. end-of-sequence masked below `min_tokens` (unless the constraint allows nothing else);
//! 5. temperature; 0 takes the most likely token, the lowest id where equal, and ends here;
//! 6. `top_k`, `typical_p`, `top_p`, `min_p`, XTC, each on the tokens that the one before left, renormalized;
//! 7. a draw.
//!
//! Temperature before the filters is OpenAI's, Hugging Face's and vLLM's convention; the order of
//! the filters among themselves is llama.cpp's (which by default applies temperature after them:
//! with temperature 1 the two agree). Penalties apply as in llama.cpp and vLLM. Temperature does
//! not change which tokens are the `k` most likely, so `top_k` is applied first and cheaply.
//!
//! A logit of minus infinity means "never"; NaN and plus infinity are faults of the model.
//!
//! Random numbers without a state: a hash of a token's position. A sequence that was preempted
//! and rebuilt, or resumed elsewhere, gets the same numbers again.

mod adjust;
mod candidates;
mod described;
#[cfg(test)]
mod reference;
mod row;
#[cfg(test)]
mod tests;

pub(crate) use described::is_describable;

use crate::{Constraint, SamplingParams, Token, TopLogprob};
use adjust::{Repetitions, TokenCounts};
use candidates::Candidates;
use kernels::Isa;

/// Threshold of XTC above which two tokens cannot reach it together.
const XTC_THRESHOLD_MAX: f32 = 0.5;
/// Changes a seed to that of XTC's random numbers.
const XTC_STREAM: u64 = 0x5854_4321_9E6C_63D0;

/// The outcome of sampling one row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sampled {
    Token(Token),
    /// The constraint excludes every token that the model can give.
    NoToken,
    /// The constraint panicked.
    Panicked,
}

/// The sequence whose token is sampled.
pub(crate) struct SampleContext<'a> {
    pub(crate) sampling: &'a SamplingParams,
    /// Prompt and generated tokens.
    pub(crate) tokens: &'a [u32],
    /// How many of `tokens` are the prompt.
    pub(crate) prompt_tokens: usize,
    pub(crate) choice: u32,
    pub(crate) eos: &'a [u32],
    pub(crate) constraint: Option<&'a mut (dyn Constraint + 'static)>,
}

/// Scratch for one row at a time, sized by the vocabulary: 49 bytes per entry.
pub(crate) struct Sampler {
    isa: Isa,
    work: Vec<f32>,
    counts: TokenCounts,
    repetitions: Repetitions,
    allowed: Vec<u32>,
    candidates: Candidates,
    top: Vec<TopLogprob>,
}

impl Sampler {
    pub(crate) fn new(vocab: usize) -> Self {
        // All levels compute the same bits. Who starts a model reports an unknown name.
        let isa = Isa::from_env().unwrap_or_else(|_| Isa::best());
        Self {
            isa,
            work: Vec::with_capacity(vocab),
            counts: TokenCounts::new(vocab),
            repetitions: Repetitions::new(),
            allowed: vec![0; vocab.div_ceil(32)],
            candidates: Candidates::new(vocab, isa),
            top: Vec::with_capacity(crate::TOP_LOGPROBS_MAX as usize),
        }
    }

    /// Whether a row is free of NaN and plus infinity, and a token is possible.
    pub(crate) fn is_sound(&self, logits: &[f32]) -> bool {
        kernels::logits::is_sound(self.isa, logits)
    }

    /// Samples the next token from finite logits; alternatives, where requested, are in
    /// [`Sampler::alternatives`] after. `None`: the constraint excludes every token that the model can give.
    pub(crate) fn sample_token(
        &mut self,
        logits: &[f32],
        context: SampleContext<'_>,
    ) -> Option<Token> {
        let sampling = context.sampling;
        let id = self.sample_id(logits, context)?;
        let (logprobs, top) = (sampling.logprobs, sampling.top_logprobs);
        let logprob = self.find_logprobs(logits, id, logprobs, top);
        Some(Token { id, logprob })
    }

    /// The id of the token that [`Sampler::sample_token`] samples, without log-probabilities.
    pub(crate) fn sample_id(
        &mut self,
        logits: &[f32],
        mut context: SampleContext<'_>,
    ) -> Option<u32> {
        if adjust::changes_nothing(&context) {
            return choose_id(&mut self.candidates, logits, &context);
        }
        self.work.clear();
        self.work.extend_from_slice(logits);
        self.counts.apply_penalties(&mut self.work, &context);
        self.repetitions
            .apply_penalty(&mut self.work, &mut self.counts, &context);
        adjust::add_bias(&mut self.work, &context.sampling.logit_bias);
        adjust::apply_constraint(&mut self.work, &mut context, &mut self.allowed);
        if adjust::masks_eos(&context) {
            adjust::forbid(&mut self.work, context.eos);
        }
        choose_id(&mut self.candidates, &self.work, &context)
    }

    /// Alternatives of the last sampled token, most likely first.
    pub(crate) fn alternatives(&self) -> &[TopLogprob] {
        &self.top
    }

    /// The log-probability of a token where `logprobs`, otherwise NaN; and `top` alternatives.
    fn find_logprobs(&mut self, logits: &[f32], id: u32, logprobs: bool, top: u32) -> f32 {
        self.top.clear();
        if !logprobs && top == 0 {
            return f32::NAN;
        }
        let norm = row::log_sum_exp(self.isa, logits);
        if top > 0 {
            let maxima = self.candidates.block_maxima(logits);
            row::top_logprobs(logits, maxima, norm, top as usize, &mut self.top);
        }
        if logprobs {
            (f64::from(logits[id as usize]) - norm) as f32
        } else {
            f32::NAN
        }
    }
}

/// The filters of a draw; see [`SamplingParams`].
struct Filters {
    temperature: f32,
    top_k: u32,
    typical_p: f32,
    top_p: f32,
    min_p: f32,
    /// The threshold of XTC where it excludes the most likely tokens of this draw.
    xtc_threshold: Option<f32>,
}

fn choose_id(
    candidates: &mut Candidates,
    logits: &[f32],
    context: &SampleContext<'_>,
) -> Option<u32> {
    let s = context.sampling;
    if s.temperature == 0.0 {
        return candidates.most_likely(logits);
    }
    let index = (context.tokens.len() - context.prompt_tokens) as u64;
    let quantile = uniform(s.seed, context.choice, index);
    let excludes_top = s.xtc_threshold <= XTC_THRESHOLD_MAX
        && uniform(s.seed ^ XTC_STREAM, context.choice, index) < f64::from(s.xtc_probability);
    let filters = Filters {
        temperature: s.temperature,
        top_k: s.top_k,
        typical_p: s.typical_p,
        top_p: s.top_p,
        min_p: s.min_p,
        xtc_threshold: excludes_top.then_some(s.xtc_threshold),
    };
    draw_id(candidates, logits, &filters, quantile)
}

/// Draws at a temperature above 0.
fn draw_id(
    candidates: &mut Candidates,
    logits: &[f32],
    filters: &Filters,
    quantile: f64,
) -> Option<u32> {
    let f = filters;
    let whole = if f.top_k == 0 && f.typical_p >= 1.0 {
        // Nearly all tokens are too unlikely for the filters: they need not be candidates.
        let whole = candidates.weigh_row(logits, f.temperature);
        if f.top_p >= 1.0 && f.min_p <= 0.0 && f.xtc_threshold.is_none() {
            return candidates.draw_of_row(whole.mass * quantile);
        }
        // The most likely token has weight 1, and `top_p` keeps it.
        candidates.gather_weighed(logits, whole.least_weight(f.top_p).max(f.min_p));
        whole
    } else {
        candidates.gather(logits, f.top_k);
        candidates.weigh(f.temperature);
        candidates.typical_p(f.typical_p);
        candidates.total_mass()
    };
    candidates.top_p(f.top_p, &whole);
    candidates.min_p(f.min_p);
    if let Some(threshold) = f.xtc_threshold {
        candidates.exclude_top(threshold);
    }
    candidates.draw(quantile)
}

/// A number in `[0, 1)` for token `index` of choice `choice` of a request with this seed.
pub(crate) fn uniform(seed: u64, choice: u32, index: u64) -> f64 {
    let hash = mix(mix(mix(seed) ^ u64::from(choice)) ^ index);
    // The upper 53 bits are a double's whole precision.
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// SplitMix64 of Steele, Lea and Flood: the increment, then the finalizer (variant 13 of Stafford).
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod random_tests {
    use super::*;

    #[test]
    fn numbers_are_uniform_along_each_argument() {
        // Chi-squared over 64 bins, 63 degrees of freedom; the numbers are fixed, so is the sum.
        let (bins, draws) = (64, 64_000);
        for axis in ["seed", "choice", "index"] {
            let mut counts = vec![0u32; bins];
            for i in 0..draws {
                let x = match axis {
                    "seed" => uniform(i, 0, 0),
                    "choice" => uniform(7, i as u32, 0),
                    _ => uniform(7, 0, i),
                };
                counts[(x * bins as f64) as usize] += 1;
            }
            let expected = draws as f64 / bins as f64;
            let sum: f64 = counts
                .iter()
                .map(|&c| (f64::from(c) - expected).powi(2) / expected)
                .sum();
            assert!(sum < 110.0, "{axis}: chi-squared {sum}");
        }
    }

    #[test]
    fn number_depends_on_each_argument() {
        let base = uniform(1, 2, 3);
        assert_eq!(base, uniform(1, 2, 3));
        for other in [
            uniform(2, 2, 3),
            uniform(1, 3, 3),
            uniform(1, 2, 4),
            uniform(1, 3, 2),
        ] {
            assert_ne!(base, other);
        }
    }
}
