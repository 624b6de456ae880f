//! Long steps: where a step may take longer than the target, so that prompts are computed together.
//!
//! A large step computes a prompt's rows for less than many small ones (the weights are unpacked once for all rows), and
//! prompts that are finished together are decoded together. But the next tokens of all decoding sequences wait for the step.
//! So a step is long only where
//!
//! - it finishes at least as many prompts as there are sequences that wait for it, and
//! - of [`TOKENS_PER_DELAY`] tokens at most one is delayed by a long step, so that the p99 inter-token latency is that of the
//!   other steps.

/// Tokens generated for each token that a long step may delay: two thirds of the hundredth that p99 leaves out, since
/// other steps vary, too.
const TOKENS_PER_DELAY: usize = 150;

/// Delays that may be saved up: a burst of prompts after a quiet time delays no more tokens than this.
const DELAYS_MAX: usize = 8;

/// Delays that a new engine has.
const DELAYS_FIRST: usize = 2;

/// The delays that long steps may still cause.
pub(crate) struct LongSteps {
    /// In tokens: [`TOKENS_PER_DELAY`] for each delay.
    saved: usize,
}

impl LongSteps {
    pub(crate) fn new() -> Self {
        Self {
            saved: DELAYS_FIRST * TOKENS_PER_DELAY,
        }
    }

    /// A step generated so many tokens.
    pub(crate) fn record_tokens(&mut self, tokens: usize) {
        self.saved = (self.saved + tokens).min(DELAYS_MAX * TOKENS_PER_DELAY);
    }

    /// Whether the next step may be long. If so, the delays of its decodes are paid.
    pub(crate) fn take(&mut self, decodes: usize, prompts_finished: usize) -> bool {
        let price = decodes.saturating_mul(TOKENS_PER_DELAY);
        let is_long = prompts_finished >= decodes && price <= self.saved;
        if is_long {
            self.saved -= price;
        }
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_step_finishes_as_many_prompts_as_it_delays_tokens() {
        // (decodes, prompts finished, whether the step may be long)
        for (decodes, prompts, is_long) in [
            (1, 0, false),
            (1, 1, true),
            (2, 1, false),
            (2, 2, true),
            (DELAYS_FIRST + 1, 100, false),
        ] {
            let label = format!("{decodes} decodes, {prompts} prompts");
            assert_eq!(LongSteps::new().take(decodes, prompts), is_long, "{label}");
        }
    }

    #[test]
    fn delayed_tokens_stay_a_small_part_of_all() {
        let (mut steps, mut delayed, mut tokens) = (LongSteps::new(), 0, 0);
        for step in 0..10_000 {
            let decodes = 1 + step % 7;
            if steps.take(decodes, decodes) {
                delayed += decodes;
            }
            tokens += decodes;
            steps.record_tokens(decodes);
            assert!(delayed <= DELAYS_FIRST + tokens / TOKENS_PER_DELAY);
        }
        assert!(delayed >= tokens / TOKENS_PER_DELAY - DELAYS_MAX);
    }

    #[test]
    fn saved_delays_are_bounded() {
        let mut steps = LongSteps::new();
        steps.record_tokens(usize::MAX / 2);
        assert!(!steps.take(DELAYS_MAX + 1, 100));
        assert!(steps.take(DELAYS_MAX, 100));
        assert!(!steps.take(1, 100));
    }
}
