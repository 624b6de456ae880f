//! Weights in, logits out.

mod batch;
mod forward;
pub mod gguf;

pub use batch::{Batch, Span, SpanView, Want};
pub use forward::{Dims, Forward, ForwardError, PageId};
