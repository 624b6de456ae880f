//! The bounds of a GGUF file. Beyond each of them a file is refused, with the bound in the message.
//!
//! What the index of a model can hold at most, while a file is being read (twice the tensors: all that the
//! parts of a split model may have, and those of the part that goes beyond it):
//! `METADATA_ENTRIES_MAX * ENTRY_BYTES + 2 * TENSORS_MAX * TENSOR_BYTES` = 35 MiB. For a small file it
//! is less than eight times the file, because each entry is counted against the bytes that are left.

/// Key-value pairs in one file. Real models have 20 to 60.
pub const METADATA_ENTRIES_MAX: u64 = 65_536;

/// Tensors in one model, all parts together. The largest mixtures of experts have a few thousand.
pub const TENSORS_MAX: u64 = 131_072;

/// Bytes of a metadata key (the format's own limit).
pub const KEY_BYTES_MAX: u64 = 65_535;

/// Bytes of a tensor's name. ggml itself stops at 63.
pub const TENSOR_NAME_BYTES_MAX: u64 = 255;

/// Dimensions of a tensor (`GGML_MAX_DIMS`).
pub const DIMS_MAX: u32 = 4;

/// Arrays inside arrays, the outermost included. No known file goes beyond one.
pub const ARRAY_DEPTH_MAX: u32 = 4;

/// Bytes to which tensor data is aligned when the file does not say.
pub const ALIGNMENT_DEFAULT: u64 = 32;

/// The largest `general.alignment` accepted.
pub const ALIGNMENT_MAX: u64 = 1 << 20;

/// Parts of a split file.
pub const SPLIT_PARTS_MAX: u16 = 1024;

/// Fewest bytes a key-value pair takes: key length, one letter, type, one byte of value.
pub(super) const ENTRY_BYTES_MIN: u64 = 8 + 1 + 4 + 1;

/// Fewest bytes a tensor info takes: name length, one letter, one dimension, kind, offset.
pub(super) const TENSOR_INFO_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// Bytes of the index for one key-value pair: where it lies, and its place in the order of keys.
pub(super) const ENTRY_BYTES: usize = 48;

/// Bytes of the index for one tensor: where it lies, and its places in the orders of names and of offsets.
pub(super) const TENSOR_BYTES: usize = 128;
