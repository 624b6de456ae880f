//! Low-rank adapters (LoRA): files, bounds, and the adapters of a sequence.
//!
//! ```text
//! adapter   a checked adapter                 gguf    adapters as llama.cpp stores them
//! stored    halves of pairs as in a file      set     adapters and scales of a sequence
//! error     why a file is not an adapter of the model
//! ```
//!
//! An adapter changes projections of a model: to `W x`, `scale * B (A x)` is added, with `A` of shape `(rank, inputs)` and
//! `B` of shape `(outputs, rank)`. PEFT's folders are read by [`crate::safetensors`], packed matrices live beside the
//! weights (`weights/low_rank.rs`), and `decoder/adapters.rs` multiplies.

mod adapter;
mod error;
mod gguf;
mod set;
mod stored;

pub use adapter::Adapter;
pub(crate) use adapter::LowRank;
pub use adapter::is_projection;
pub use error::AdapterError;
pub use set::AdapterSet;
pub(crate) use stored::{HalfSide, ScaleRule, StoredAdapter, StoredHalf};

/// Adapters of one model.
pub const ADAPTERS_MAX: usize = 64;
/// Adapters of one sequence.
pub const SEQUENCE_ADAPTERS_MAX: usize = 4;
/// Rank of an adapter: rows of `A`.
pub const ADAPTER_RANK_MAX: usize = 512;
/// Bytes of the packed adapters of one model, which are kept in f32.
pub const ADAPTERS_BYTES_MAX: usize = 4 << 30;
/// Rows that are multiplied with adapters at a time, which bounds the workspace.
pub const ADAPTER_CHUNK_ROWS: usize = 128;
/// Largest magnitude of a scale, of a request as well as of a file.
pub const ADAPTER_SCALE_MAX: f32 = 1000.0;
