//! Weights in files: GGUF, safetensors, adapters and files of packed matrices; configurations; the tensors of each
//! architecture, with their names and shapes. Knows no forward pass.

pub mod adapters;
pub mod config;
pub mod encoder;
mod file_stamp;
mod files;
pub mod gguf;
mod load_error;
pub mod packed_file;
#[expect(missing_docs, reason = "most fields have the names of their tensors")]
pub mod parameters;
pub mod safetensors;
mod tensor_entry;
pub mod vision;

pub use adapters::{Adapter, AdapterError};
pub use config::{Architecture, Config, ConfigError};
pub use file_stamp::FileStamp;
pub use files::ModelFiles;
pub use load_error::LoadError;
pub use packed_file::PackedSections;
pub use parameters::Packed;
pub use tensor_entry::TensorEntry;
