//! Arithmetic on slices: quantized matmul, attention, norms, rope, softmax; the thread pool.
//!
//! Knows no models and no requests. Each vector path has a scalar reference implementation that defines the
//! result.
//!
//! Layers, from the bottom: `memory`, `format`, `quant`, `packing` and `kv` (data formats);
//! `layout` (types shared by kernels and drivers); `arch` (kernels for one instruction set, pure
//! functions); `isa` and `dispatch` (choice of the instruction set); `activations`, `matrix`, `matmul`,
//! `attention`, `recurrent`, `ops`, `logits` (drivers).

#![deny(clippy::match_bool)]

mod activations;
mod arch;
mod attention;
mod dispatch;
mod format;
mod isa;
mod kv;
mod layout;
pub mod logits;
mod matmul;
mod matrix;
mod memory;
mod ops;
mod packing;
mod pool;
pub mod probe;
mod quant;
mod recurrent;
mod rope;

pub use attention::{
    AttentionBounds, AttentionParams, AttentionScratch, DENSE_TILE, DenseAttention, DenseShape,
    DenseSpan, KV_SPLIT_SLOTS, QueryRow, Window, attend,
};
pub use format::Format;
pub use isa::{ISA_VARIABLE, Isa, IsaError};
pub use kv::{KvCache, KvError, KvKind, KvShape, KvSlot};
pub use layout::activations::Activations;
pub use matmul::{RowGroup, matmul, matmul_groups};
pub use matrix::{Matrix, MatrixStack, PackError, packing_fingerprint};
pub use memory::ZeroedBuffer;
pub use ops::{
    add_assign, add_mul, add_scaled, clamped_swiglu_mul, exp_shifted, gelu_erf_in_place, gelu_mul,
    l2_norm_in_place, quick_gelu_in_place, rms_norm, rms_norm_in_place, scale, sigmoid_mul,
    silu_in_place, silu_mul, softcap, squared_relu_mul, walsh_hadamard,
};
pub use packing::{LentMemory, PackedBytes};
pub use pool::Pool;
pub use quant::{
    NonFiniteWeight, QuantBlock, QuantFormat, ScaleKind, dequantize, power_scale, quantize,
    quantize_with_search, requantize_rows,
};
pub use recurrent::{
    Convolution, STATE_COLUMN_GROUP, ScanPlan, ScanRows, ScanRule, ScanShape, StateShape,
    StateStore, causal_conv, scan,
};
pub use rope::{Rope, RopePairs, RopeSpec, Yarn};
