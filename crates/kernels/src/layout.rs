//! Data layouts and call types shared by the drivers and the kernels of `arch` below them.

pub(crate) mod activation_block;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AMX"))]
pub(crate) mod activations;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "for AMX"))]
pub(crate) mod gemm;
pub(crate) mod tiles;

/// Offset that makes the quants of a query positive.
pub(crate) const QUERY_OFFSET: i32 = 1 << 14;
/// Bits of the lower of the two planes that a quant plus [`QUERY_OFFSET`] is split into.
pub(crate) const QUERY_LOW_BITS: u32 = 7;

/// Borrowed int15 queries with one scale per query.
#[derive(Clone, Copy)]
pub(crate) struct QuantizedQueries<'a> {
    /// Elements of a query, padding included.
    pub(crate) elements: usize,
    /// `(queries, elements)`, from -16383 to 16383.
    pub(crate) quants: &'a [i16],
    /// Quants plus [`QUERY_OFFSET`], in two planes of bytes: `(queries, elements / 4, 2, 4)`.
    pub(crate) planes: &'a [u8],
    /// `(queries)`.
    pub(crate) scales: &'a [f32],
}

/// The shift of a softmax: the row maximum, or 0 if every score is -inf.
pub(crate) fn softmax_shift(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// Bound of the gate from above, and of the magnitude of what it multiplies.
pub(crate) const SWIGLU_LIMIT: f32 = 7.0;
/// Factor of the gate in the sigmoid, also of quick-gelu (CLIP).
pub(crate) const SWIGLU_ALPHA: f32 = 1.702;
