//! GGUF files, read without copying and written without buffering weights.
//!
//! A GGUF consists of a header (magic, version, two counts), metadata (typed key-value pairs), tensor
//! infos (name, shape, kind, offset) and one aligned data section. [`Gguf`] maps the file and
//! keeps an index of the positions of keys, values and tensors. Strings, arrays and
//! weights are borrowed from the mapping.
//!
//! Invariants that [`Gguf::open`] establishes and all other code relies on:
//! * every count, length and offset was compared with the remaining bytes of the file, and with a named
//!   limit of [`limits`], before use and before any allocation;
//! * keys and tensor names are UTF-8 and unique, over all parts of a split file;
//! * the bytes of each tensor lie in the data section of the tensor's part, their number follows from shape and
//!   kind, and no two tensors share a byte.
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
pub use tokenizer::{InfillMeta, TokenizerMeta};
pub use value::{Array, Text, Value};
pub use value_kind::ValueKind;
pub use writer::{GgufWriter, TensorPlan, WriteError};
