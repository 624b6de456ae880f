//! What the inner loops of attention and their callers agree on.

/// Added to a query's quant it makes it positive.
pub(crate) const QUERY_OFFSET: i32 = 1 << 14;
/// Bits of the lower of the two planes that a quant with [`QUERY_OFFSET`] is cut into.
pub(crate) const QUERY_LOW_BITS: u32 = 7;

/// Some queries of a table.
#[derive(Clone, Copy)]
pub(crate) struct QuantizedQueries<'a> {
    /// Elements of a query.
    pub(crate) elements: usize,
    /// `(queries, elements)`, from -16383 to 16383.
    pub(crate) quants: &'a [i16],
    /// The same with [`QUERY_OFFSET`], in two planes: `(queries, elements / 4, 2, 4)`.
    pub(crate) planes: &'a [u8],
    /// `(queries)`.
    pub(crate) scales: &'a [f32],
}

/// What is taken off scores whose largest is `max`: that, unless there is none.
pub(crate) fn softmax_shift(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}
