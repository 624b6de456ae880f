//! Properties of the fake model.

use super::Fault;
use model::Dims;
use std::ops::Range;

/// Properties of the fake model.
#[derive(Clone, Debug)]
pub struct FakeConfig {
    /// Sizes.
    pub dims: Dims,
    /// The end-of-sequence token.
    pub eos: u32,
    /// Probability that `eos` is by far the most likely token; 0 to 1.
    pub eos_probability: f32,
    /// Tokens to generate, beside `eos`; within the vocabulary.
    pub tokens: Range<u32>,
    /// Probability that the successor of the last token in `tokens` (cyclic) is
    /// much likelier than the others; 0 to 1. Makes answers repeat themselves.
    pub habit: f32,
    /// Failures to simulate.
    pub faults: Vec<Fault>,
}

impl Default for FakeConfig {
    fn default() -> Self {
        Self {
            dims: Dims {
                vocab: 256,
                context_max: 1024,
                page_tokens: 16,
                pages: 256,
                rows_max: 512,
                logit_rows_max: 256,
            },
            eos: 0,
            eos_probability: 0.0,
            tokens: 1..256,
            habit: 0.0,
            faults: Vec::new(),
        }
    }
}
