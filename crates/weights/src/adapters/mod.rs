//! Low-rank adapters (LoRA): files and bounds.
//!
//! ```text
//! adapter   a checked adapter                 gguf    adapters as llama.cpp stores them
//! stored    halves of pairs as in a file      error   why a file is not an adapter of the model
//! ```
//!
//! An adapter changes projections of a model: to `W x`, `scale * B (A x)` is added, with `A` of shape `(rank, inputs)` and
//! `B` of shape `(outputs, rank)`. PEFT's folders are read by [`crate::safetensors`], and packed matrices live with the
//! parameters (`parameters/low_rank.rs`).

mod adapter;
mod error;
mod gguf;
mod stored;

pub(crate) use adapter::LowRank;
pub use adapter::{Adapter, is_projection};
pub use error::AdapterError;
pub(crate) use stored::{HalfSide, ScaleRule, StoredAdapter, StoredHalf};

/// Rank of an adapter: rows of `A`.
pub const ADAPTER_RANK_MAX: usize = 512;
/// Bytes of the packed adapters of one model, which are kept in f32.
pub const ADAPTERS_BYTES_MAX: usize = 4 << 30;
