//! Log-probabilities of the model's own distribution: before penalties, temperature
//! and filters, as OpenAI and vLLM report them.

use crate::TopLogprob;
use kernels::logits::MAXIMA_BLOCK;

/// The `count` most likely tokens, most likely first, the lower id first where equal; `norm` is
/// [`super::row::log_sum_exp`] of the logits, `maxima` their [`kernels::logits::block_maxima`]. One pass: nearly every
/// block is skipped by comparing the block's largest logit with the last kept token's.
pub(super) fn top(
    logits: &[f32],
    maxima: &[f32],
    norm: f64,
    count: usize,
    out: &mut Vec<TopLogprob>,
) {
    out.clear();
    for (block, (logits, max)) in logits.chunks(MAXIMA_BLOCK).zip(maxima).enumerate() {
        let full = out.len() == count;
        if full && out.last().is_some_and(|last| *max <= last.logprob) {
            continue;
        }
        for (i, &logit) in logits.iter().enumerate() {
            keep(out, count, (block * MAXIMA_BLOCK + i) as u32, logit);
        }
    }
    for kept in out {
        kept.logprob = (f64::from(kept.logprob) - norm) as f32;
    }
}

/// Inserts a token among the `count` most likely so far, if `logit` is large enough.
fn keep(out: &mut Vec<TopLogprob>, count: usize, id: u32, logit: f32) {
    if out.len() == count {
        match out.last() {
            Some(last) if logit > last.logprob => out.pop(),
            _ => return,
        };
    }
    let at = out.partition_point(|kept| kept.logprob >= logit);
    let logprob = logit;
    out.insert(at, TopLogprob { id, logprob });
}
