//! Forward passes on the CPU: decoders and encoders over packed weights, with KV pages and recurrent states.

mod decoder;
mod decoder_model;
mod encoder;
mod norm;
mod tower;

pub use decoder::adapters::ADAPTER_CHUNK_ROWS;
pub use decoder::state_head::STATE_HEAD_ROWS;
pub use decoder_model::{
    LoadOptions, Model, ModelBytes, PAGE_TOKENS, PAGE_TOKENS_MAX, PAGES_MAX, ROWS_MAX, STATES_MAX,
};
pub use encoder::EncoderModel;
pub use tower::{PATCHES_MAX, Tower, TowerAlone};

/// Version of the arithmetic. Raised by every change after which equal inputs may give other logits, so that a recorded
/// stream is known to be continued with other bits (docs/decisions/0008-tiles-unless-determinism-is-asked-for.md).
pub const ARITHMETIC_VERSION: u32 = 1;
