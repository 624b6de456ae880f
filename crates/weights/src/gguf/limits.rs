//! Bounds of GGUF files. A file beyond a bound is rejected, with the bound in the message.
//!
//! The index of a model, while a file is being read, takes at most (twice the tensors: all that the parts of
//! a split model may have, and those of the part that exceeds the bound)
//! `METADATA_ENTRIES_MAX * ENTRY_BYTES + 2 * TENSORS_MAX * TENSOR_BYTES` = 35 MiB. For a small file the index
//! takes less than eight times the file's size, because each entry is checked against the remaining bytes.

/// Key-value pairs in one file. Real models have 20 to 60.
pub const METADATA_ENTRIES_MAX: u64 = 65_536;

/// Tensors in one model, all parts together. The largest mixtures of experts have a few thousand.
pub const TENSORS_MAX: u64 = 131_072;

/// Bytes of a metadata key (the format's own limit).
pub const KEY_BYTES_MAX: u64 = 65_535;

/// Bytes of a tensor's name. ggml's limit is 63.
pub const TENSOR_NAME_BYTES_MAX: u64 = 255;

/// Dimensions of a tensor (`GGML_MAX_DIMS`).
pub const DIMS_MAX: u32 = 4;

/// Nesting of arrays, including the outermost. No known file has nested arrays.
pub const ARRAY_DEPTH_MAX: u32 = 4;

/// Alignment of tensor data, in bytes, when the file has none.
pub const ALIGNMENT_DEFAULT: u64 = 32;

/// The largest `general.alignment` accepted.
pub const ALIGNMENT_MAX: u64 = 1 << 20;

/// Parts of a split file.
pub const SPLIT_PARTS_MAX: u16 = 1024;

/// Smallest key-value pair: key length, one letter, type, one byte of value.
pub(super) const ENTRY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;

/// Smallest tensor info: name length, one letter, one dimension, kind, offset.
pub(super) const TENSOR_INFO_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// Bytes of the index for one key-value pair: its range, and its index in the order of keys.
pub(super) const ENTRY_BYTES: usize = 48;

/// Bytes of the index for one tensor: its range, and its indices in the orders of names and offsets.
pub(super) const TENSOR_BYTES: usize = 128;
