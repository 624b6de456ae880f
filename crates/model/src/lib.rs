//! Model files, weights and the forward pass: tokens in, logits out.

pub mod adapters;
mod batch;
pub mod config;
mod decoder;
pub mod encoder;
mod file_stamp;
mod files;
mod forward;
pub mod gguf;
mod model;
mod norm;
pub mod packed_file;
pub mod safetensors;
mod span_states;
mod tensor_entry;
mod weights;

pub use adapters::{Adapter, AdapterError, AdapterSet};
pub use batch::{Batch, PageId, Span, SpanView, Want};
pub use config::{Architecture, Config, ConfigError};
pub use decoder::state_head::STATE_HEAD_ROWS;
pub use encoder::EncoderModel;
pub use file_stamp::FileStamp;
pub use files::ModelFiles;
pub use forward::{ARITHMETIC_VERSION, Dims, Forward, ForwardError};
pub use model::{
    LoadOptions, Model, ModelBytes, PAGE_TOKENS, PAGE_TOKENS_MAX, PAGES_MAX, ROWS_MAX, STATES_MAX,
};
pub use packed_file::PackedSections;
pub use span_states::{KEPT_MAX, KeptState, SpanStates, StateId};
pub use tensor_entry::TensorEntry;
pub use weights::{LoadError, Packed};
