//! The bounds of a folder of safetensors. Beyond each of them it is refused, with the bound in the
//! message.
//!
//! What the index of a model can hold at most, while its headers are being read: for each tensor what
//! its header says, its entry, how it is loaded and its two names ([`ENTRY_BYTES`]), and the texts of
//! a header and of the index that names the files: 176 MiB. For a small folder it is a small multiple
//! of its headers.

/// Bytes of `config.json`. Real ones have one to thirty thousand.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Bytes of `model.safetensors.index.json`. The largest have some ten million.
pub const INDEX_BYTES_MAX: u64 = 1 << 25;

/// Bytes of one file's header. The format's own reader stops at 100 million.
pub const HEADER_BYTES_MAX: u64 = 1 << 25;

/// Files of one model.
pub const SHARDS_MAX: usize = 1024;

/// Tensors of one model, all files together.
pub const TENSORS_MAX: usize = 131_072;

/// Bytes of a tensor's name.
pub const TENSOR_NAME_BYTES_MAX: usize = 255;

/// Dimensions of a tensor.
pub const DIMS_MAX: usize = 4;

/// Bytes of the index for one tensor, its two names (in its file and in GGUF) included.
pub(super) const ENTRY_BYTES: usize = 384 + 2 * TENSOR_NAME_BYTES_MAX;
