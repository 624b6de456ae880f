//! Inputs of a draw beside the logits.

use crate::{Constraint, SamplingParams};

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
