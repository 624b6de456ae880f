//! Output constraints: which tokens may be sampled next.

pub mod compiler;

pub(crate) mod harmony;
pub(crate) mod mask_worker;
pub(crate) mod prompt_logprobs;
pub(crate) mod reasoning_budget;
pub(crate) mod strict_tools;
pub(crate) mod text_delimiters;

pub use prompt_logprobs::UNSCORED;
