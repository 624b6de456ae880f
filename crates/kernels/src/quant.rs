//! ggml's block formats: what the bytes of a GGUF tensor mean, and how to write such bytes.
//!
//! Every quantized weight is `scale * (code - zero) + shift`: the code is an unsigned integer of a
//! few bits, `zero` is the format's own constant, and scale and shift belong to 16 or 32
//! neighboring weights ([`quant`]). Formats differ in where those bits lie ([`place`]) and in how
//! scales are stored ([`block`]). Facts: `ggml-common.h` and `ggml-quants.c` of the ggml project.

mod bit_position;
mod block;
mod fit;
mod format;
mod requantize;
#[cfg(test)]
mod requantize_tests;
mod rows;
mod scale_search;
#[cfg(test)]
mod tests;

pub(crate) use block::QuantBlock;
pub(crate) use format::{QuantFormat, ScaleKind};
pub use requantize::{NonFiniteWeight, requantize_rows};
pub use rows::{dequantize, quantize, quantize_with_search};
