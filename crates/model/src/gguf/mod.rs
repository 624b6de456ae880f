//! GGUF files: read without copying, written without holding.
//!
//! A GGUF is a header (magic, version, two counts), metadata (typed key-value pairs), tensor
//! infos (name, shape, kind, offset) and one aligned data section. [`Gguf`] maps the file and
//! keeps only an index into it: where each key, value and tensor lies. Strings, arrays and
//! weights are handed out as borrows of the mapping.
//!
//! Invariants, established once by [`Gguf::open`] and relied on everywhere after:
//! * every count, length and offset was compared with what the file has left, and with a named
//!   limit of [`limits`], before it was used or anything was allocated for it;
//! * keys and tensor names are UTF-8 and unique, over all parts of a split file;
//! * the bytes of each tensor lie in the data section of its part, are as many as shape and
//!   kind say, and no two tensors share a byte.
//!
//! Versions 2 and 3 are read, little-endian only; version 3 is written.

mod cursor;
mod elements;
mod error;
mod file;
mod from_value;
mod header;
mod kind;
pub mod limits;
mod metadata;
mod source;
mod split;
mod tensor;
mod tokenizer;
mod value;
mod value_kind;
mod writer;

pub use elements::Elements;
pub use error::GgufError;
pub use file::Gguf;
pub use from_value::{FromValue, Mismatch};
pub use kind::TensorKind;
pub use source::Source;
pub use split::SplitName;
pub use tensor::TensorInfo;
pub use tokenizer::TokenizerMeta;
pub use value::{Array, Text, Value};
pub use value_kind::ValueKind;
pub use writer::{GgufWriter, TensorPlan, WriteError};
