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

use crate::LoadError;
pub(crate) use adapter::LowRank;
pub use adapter::{Adapter, is_projection};
pub use error::AdapterError;
use model::adapters::ADAPTERS_MAX;
pub(crate) use stored::{HalfSide, ScaleRule, StoredAdapter, StoredHalf};

/// Rank of an adapter: rows of `A`.
pub const ADAPTER_RANK_MAX: usize = 512;
/// Bytes of the packed adapters of one model, which are kept in f32.
pub const ADAPTERS_BYTES_MAX: usize = 4 << 30;

/// Bounds the adapters of one model.
///
/// # Errors
/// There are more than [`ADAPTERS_MAX`], or they take more than [`ADAPTERS_BYTES_MAX`].
pub fn check_adapters(adapters: &[Adapter]) -> Result<(), LoadError> {
    let bytes = adapters.iter().map(Adapter::packed_bytes).sum();
    let bounds = [
        ("the number of adapters", adapters.len(), ADAPTERS_MAX),
        ("the adapters' size in bytes", bytes, ADAPTERS_BYTES_MAX),
    ];
    match bounds.into_iter().find(|(_, given, most)| given > most) {
        None => Ok(()),
        Some((name, given, most)) => Err(LoadError::Option {
            name,
            given,
            least: 0,
            most,
        }),
    }
}
