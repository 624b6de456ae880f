//! Bounds of a folder of safetensors. A folder beyond a bound is rejected, with the bound in the message.
//!
//! The index of a model, while headers are being read, takes at most 176 MiB: for each tensor the header's
//! entry, the parsed entry, the conversion and two names ([`ENTRY_BYTES`]), and the texts of a header and of
//! the index of files. For a small folder the index takes a small multiple of the headers' size.

/// Bytes of `config.json`. Real files have one to thirty thousand.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Bytes of `tokenizer.json`; the tokenizer has the same bound.
pub const TOKENIZER_BYTES_MAX: u64 = 1 << 28;

/// Modules in `modules.json`. Real files have two to five.
pub const MODULES_MAX: u64 = 16;

/// Bytes of `model.safetensors.index.json`. The largest files have some ten million.
pub const INDEX_BYTES_MAX: u64 = 1 << 25;

/// Bytes of one file's header. The reference reader's limit is 100 million.
pub const HEADER_BYTES_MAX: u64 = 1 << 25;

/// Files of one model.
pub const SHARDS_MAX: usize = 1024;

/// Tensors of one model, all files together.
pub const TENSORS_MAX: usize = 131_072;

/// Bytes of a tensor's name.
pub const TENSOR_NAME_BYTES_MAX: usize = 255;

/// Dimensions of a tensor: kernels of two frames have five.
pub const DIMS_MAX: usize = 5;

/// Bytes of the index for one tensor, including the two names (in its file and in GGUF).
pub(super) const ENTRY_BYTES: usize = 384 + 2 * TENSOR_NAME_BYTES_MAX;
