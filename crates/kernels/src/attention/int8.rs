//! Reference implementation of attention over an int8 KV cache, and 4-bit keys and values: unpacked to int8, one page at a time.

use super::KV_SPLIT_SLOTS;
use crate::Isa;
use crate::dispatch::by_isa;
use crate::kv::{NibbleKv, QuantizedKv, SCALE_GROUP};
use crate::layout::{QUERY_LOW_BITS, QUERY_OFFSET, QuantizedQueries};
use half::f16;

/// Largest magnitude of the quants of a query.
const QUERY_MAX: f32 = 16_383.0;
/// Buffers of quantized queries. `elements` is `head_dim` with padding, which is zero.
pub(super) struct QueryQuantizer {
    elements: usize,
    /// `(queries, elements)`.
    quants: Vec<i16>,
    /// Quants plus [`QUERY_OFFSET`], the upper eight bits and the lower seven: `(queries, elements / 4, 2, 4)`.
    planes: Vec<u8>,
    /// `(queries)`.
    scales: Vec<f32>,
}

impl QueryQuantizer {
    pub(super) fn new(queries: usize, elements: usize) -> Self {
        Self {
            elements,
            quants: vec![0; queries * elements],
            planes: vec![0; queries * elements * 2],
            scales: vec![0.0; queries],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.quants.len() * 2 + self.planes.len() + self.scales.len() * size_of::<f32>()
    }

    /// Quantizes queries `(_, dim)`. A query that is not finite gets the scale NaN.
    pub(super) fn quantize_queries(&mut self, queries: &[f32], dim: usize) {
        let elements = self.elements;
        for (i, query) in queries.chunks_exact(dim).enumerate() {
            let quants = &mut self.quants[i * elements..(i + 1) * elements];
            self.scales[i] = quantize_query(query, quants);
            let planes = &mut self.planes[i * elements * 2..(i + 1) * elements * 2];
            for (planes, quants) in planes.chunks_exact_mut(8).zip(quants.chunks_exact(4)) {
                for (e, quant) in quants.iter().enumerate() {
                    let quant = i32::from(*quant) + QUERY_OFFSET;
                    planes[e] = (quant >> QUERY_LOW_BITS) as u8;
                    planes[4 + e] = (quant & ((1 << QUERY_LOW_BITS) - 1)) as u8;
                }
            }
        }
    }

    /// The first `n` queries.
    pub(super) fn first_queries(&self, n: usize) -> QuantizedQueries<'_> {
        QuantizedQueries {
            elements: self.elements,
            quants: &self.quants[..n * self.elements],
            planes: &self.planes[..n * self.elements * 2],
            scales: &self.scales[..n],
        }
    }
}

/// Quantizes a query and returns the scale.
fn quantize_query(query: &[f32], quants: &mut [i16]) -> f32 {
    let most = query.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let finite = query.iter().fold(true, |all, x| all & x.is_finite());
    if !finite || most == 0.0 {
        quants.fill(0);
        return if finite { 0.0 } else { f32::NAN };
    }
    // In two steps, since the inverse of a very small number is infinite.
    let scale = most / QUERY_MAX;
    for (quant, x) in quants.iter_mut().zip(query) {
        *quant = (x / most * QUERY_MAX).round_ties_even() as i16;
    }
    quants[query.len()..].fill(0);
    scale
}

/// `scores[i, slot] = queries[i] . keys[slot]` for keys `(elements / 4, slots, 4)`; rows of scores are `stride`
/// apart.
fn qk_scores(
    queries: QuantizedQueries<'_>,
    keys: QuantizedKv<'_>,
    scores: &mut [f32],
    stride: usize,
    _upcoming: &[u16],
) {
    let elements = queries.elements;
    let slots = keys.quants.len() / elements;
    let rows = queries.quants.chunks_exact(elements).zip(queries.scales);
    for ((query, factor), scores) in rows.zip(scores.chunks_mut(stride)) {
        let scores = &mut scores[..slots];
        scores.fill(0.0);
        let groups = query
            .chunks(SCALE_GROUP)
            .zip(keys.quants.chunks(SCALE_GROUP * slots));
        for ((query, keys), scales) in groups.zip(keys.scales.chunks_exact(slots)) {
            for (slot, (score, scale)) in scores.iter_mut().zip(scales).enumerate() {
                let mut dot = 0;
                for (query, keys) in query.as_chunks::<4>().0.iter().zip(keys.chunks(4 * slots)) {
                    let quad = query.iter().zip(&keys[slot * 4..][..4]);
                    dot += quad
                        .map(|(q, k)| i32::from(*q) * i32::from(*k))
                        .sum::<i32>();
                }
                *score += dot as f32 * f16::from_bits(*scale).to_f32();
            }
        }
        for score in scores {
            *score *= factor;
        }
    }
}

/// `sums[i] += weights[i, t] * values[slot + t]` over rising `t < count`, for values `(slots, elements)`
/// and sums `(n, elements)`; rows of weights are `stride` apart.
fn accumulate_pv(
    sums: &mut [f32],
    elements: usize,
    weights: &[f32],
    stride: usize,
    values: QuantizedKv<'_>,
    (slot, count): (usize, usize),
    _upcoming: &[u16],
) {
    let slots = values.quants.len() / elements;
    for t in 0..count {
        let at = slot + t;
        let row = &values.quants[at * elements..][..elements];
        for (group, quants) in row.chunks(SCALE_GROUP).enumerate() {
            let scale = f16::from_bits(values.scales[group * slots + at]).to_f32();
            let rows = sums.chunks_exact_mut(elements).zip(weights.chunks(stride));
            for (sums, weights) in rows {
                for (sum, quant) in sums[group * SCALE_GROUP..].iter_mut().zip(quants) {
                    *sum += weights[t] * (f32::from(*quant) * scale);
                }
            }
        }
    }
}

by_isa! {
    qk_scores, crate::arch::attention_int8::qk_scores;
    pub(super) fn qk_scores_int8(
        queries: QuantizedQueries<'_>,
        keys: QuantizedKv<'_>,
        scores: &mut [f32],
        stride: usize,
        upcoming: &[u16],
    )
}
by_isa! {
    accumulate_pv, crate::arch::attention_int8::accumulate_pv;
    #[expect(clippy::too_many_arguments, reason = "one inner loop, eight inputs")]
    pub(super) fn accumulate_pv_int8(
        sums: &mut [f32],
        elements: usize,
        weights: &[f32],
        stride: usize,
        values: QuantizedKv<'_>,
        part: (usize, usize),
        upcoming: &[u16],
    )
}

/// Buffer for the unpacked keys or values of one page.
pub(super) struct UnpackedPage {
    quants: Vec<i8>,
}

impl UnpackedPage {
    /// A buffer for pages of up to [`KV_SPLIT_SLOTS`] positions of `elements` elements.
    pub(super) fn new(elements: usize) -> Self {
        Self {
            quants: vec![0; KV_SPLIT_SLOTS * elements],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.quants.len()
    }

    /// The int8 form of keys or values.
    pub(super) fn unpack<'a>(&'a mut self, isa: Isa, packed: NibbleKv<'a>) -> QuantizedKv<'a> {
        let half = packed.nibbles.len();
        let quants = &mut self.quants[..2 * half];
        let (low, high) = quants.split_at_mut(half);
        unpack_nibbles(isa, packed.nibbles, low, high);
        QuantizedKv {
            quants,
            scales: packed.scales,
            memory: packed.memory,
        }
    }
}

/// The lower and the upper nibbles of `packed` as numbers from -8 to 7.
fn scalar_nibbles(packed: &[u8], low: &mut [i8], high: &mut [i8]) {
    let halves = low.iter_mut().zip(high);
    for ((low, high), packed) in halves.zip(packed) {
        *low = (packed << 4) as i8 >> 4;
        *high = *packed as i8 >> 4;
    }
}

by_isa! {
    scalar_nibbles, crate::arch::attention_int4::unpack_nibbles;
    fn unpack_nibbles(packed: &[u8], low: &mut [i8], high: &mut [i8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_nibbles_is_unpacked_on_every_level() {
        // As many bytes as the smallest page of the smallest head, and several times that.
        for bytes in [128, 256, 1024] {
            let packed: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 256) as u8).collect();
            let (mut low, mut high) = (vec![99; bytes], vec![99; bytes]);
            let page = NibbleKv {
                nibbles: &packed,
                scales: &[],
                memory: &[],
            };
            for isa in Isa::available() {
                unpack_nibbles(isa, &packed, &mut low, &mut high);
                for i in 0..bytes {
                    let want = (page.quant(i), page.quant(bytes + i));
                    assert_eq!((low[i], high[i]), want, "{isa}, byte {:#x}", packed[i]);
                }
            }
        }
        let bounds = NibbleKv {
            nibbles: &[0x78],
            scales: &[],
            memory: &[],
        };
        assert_eq!((bounds.quant(0), bounds.quant(1)), (-8, 7));
    }
}
