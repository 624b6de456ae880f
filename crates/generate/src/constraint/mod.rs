//! Output constraints: which tokens may be sampled next.

pub mod bitmask;
pub mod harmony;
pub mod mask_worker;
pub mod prompt_logprobs;
pub mod reasoning_budget;
pub mod strict_tools;
pub mod text_delimiters;
