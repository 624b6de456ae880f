//! ggml's block formats: reading and writing the bytes of a GGUF tensor.
//!
//! Each quantized weight is `scale * (quant - zero) + shift`: the quant is an unsigned integer of a few bits,
//! `zero` is a constant of the format, and 16 or 32 consecutive weights share scale and shift ([`format`]).
//! Formats differ in the position of the bits ([`bit_position`]) and in how scales are stored ([`block`]). In the IQ
//! formats a quant stands for a level of a table ([`levels`]); those below 4 bits store quants as patterns
//! ([`pattern`]).
//! Source: `ggml-common.h` and `ggml-quants.c` of the ggml project.

mod bit_position;
mod block;
mod fit;
mod format;
mod grids;
mod levels;
mod pattern;
mod requantize;
#[cfg(test)]
mod requantize_tests;
mod rows;
mod scale_search;
#[cfg(test)]
mod tests;

pub(crate) use block::{QuantBlock, with_constant_format};
pub(crate) use format::{QuantFormat, ScaleKind, power_scale};
pub use requantize::{NonFiniteWeight, requantize_rows};
pub use rows::{dequantize, quantize, quantize_with_search};
