//! Log-probabilities, of the distribution as the model gave it: before penalties, temperature
//! and filters, as OpenAI and vLLM report them.

use crate::TopLogprob;

/// `ln(sum(exp(logits)))`; subtract it from a logit to get a log-probability.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().fold(f32::NEG_INFINITY, |max, &l| max.max(l));
    let sum: f64 = logits.iter().map(|&l| f64::from((l - max).exp())).sum();
    f64::from(max) + sum.ln()
}

/// The `count` most likely tokens, most likely first, the lower id first where equal. One pass:
/// nearly every token is refused by comparing it with the last of those kept.
pub(super) fn top(logits: &[f32], norm: f64, count: usize, out: &mut Vec<TopLogprob>) {
    out.clear();
    for (id, &logit) in logits.iter().enumerate() {
        if out.len() == count {
            match out.last() {
                Some(last) if logit > last.logprob => out.pop(),
                _ => continue,
            };
        }
        let at = out.partition_point(|kept| kept.logprob >= logit);
        out.insert(
            at,
            TopLogprob {
                id: id as u32,
                logprob: logit,
            },
        );
    }
    for kept in out {
        kept.logprob = (f64::from(kept.logprob) - norm) as f32;
    }
}
