//! Dense attention against softmax attention in f64, and bit-equality across cuts and threads, on every level.

use super::{DENSE_TILE, DenseAttention, DenseShape, DenseSpan};
use crate::attention::tests::Noise;
use crate::{Isa, Pool};
use proptest::prelude::*;
use std::ops::Range;

/// Permitted distance in f32 with keys and values in f16, for values up to 2 and scores of moderate size.
const BOUND: f64 = 4e-3;
/// Permitted distance in bf16: queries, keys, weights and values have eight bits.
const BOUND_AMX: f64 = 4e-2;

/// A picture's queries, keys and values, `(rows, heads, head_dim)` each, and what its queries see.
struct Picture {
    heads: usize,
    head_dim: usize,
    rows: usize,
    spans: Vec<DenseSpan>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Picture {
    fn new(heads: usize, head_dim: usize, rows: usize, spans: Vec<DenseSpan>) -> Self {
        let mut noise = Noise(rows as u64 * 31 + head_dim as u64);
        let width = rows * heads * head_dim;
        Self {
            heads,
            head_dim,
            rows,
            spans,
            q: noise.take(width, 4.0),
            k: noise.take(width, 1.0),
            v: noise.take(width, 2.0),
        }
    }

    /// All rows see all rows.
    fn whole(heads: usize, head_dim: usize, rows: usize) -> Self {
        let spans = vec![span(0..rows, 0..rows)];
        Self::new(heads, head_dim, rows, spans)
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Keys and values stored in blocks of `block` tiles, where those of a larger picture were before.
    fn stored(&self, isa: Isa, pool: &mut Pool, block: usize) -> DenseAttention {
        let mut dense = DenseAttention::new(DenseShape {
            heads: self.heads,
            head_dim: self.head_dim,
            rows_max: self.rows + 70,
            queries_max: self.rows,
            threads: pool.threads(),
            isa,
        });
        let width = self.heads * self.head_dim;
        let before = vec![f32::NAN; (self.rows + 70) * width];
        dense.begin(self.rows + 70);
        dense.store(pool, 0..self.rows + 70, &before, &before);
        dense.begin(self.rows);
        for first in (0..self.rows).step_by(block * DENSE_TILE) {
            let rows = first..self.rows.min(first + block * DENSE_TILE);
            let part = rows.start * width..rows.end * width;
            dense.store(pool, rows, &self.k[part.clone()], &self.v[part]);
        }
        dense
    }

    /// All rows, in one call of all spans.
    fn attend(&self, isa: Isa, threads: usize) -> Vec<f32> {
        let mut pool = Pool::new(threads);
        let mut out = vec![0.0; self.q.len()];
        let mut dense = self.stored(isa, &mut pool, threads);
        dense.attend(&mut pool, &self.spans, self.scale(), &self.q, &mut out);
        out
    }

    /// The keys that a row sees.
    fn seen(&self, row: usize) -> Option<Range<usize>> {
        let span = self.spans.iter().find(|span| span.queries.contains(&row));
        span.map(|span| span.keys.clone())
    }

    /// One head of a row.
    fn head<'a>(&self, all: &'a [f32], row: usize, head: usize) -> &'a [f32] {
        &all[(row * self.heads + head) * self.head_dim..][..self.head_dim]
    }

    /// Softmax attention in f64.
    fn exact(&self) -> Vec<f64> {
        let mut out = Vec::new();
        for row in 0..self.rows {
            for head in 0..self.heads {
                let query = self.head(&self.q, row, head);
                let seen = self.seen(row).unwrap_or(0..0);
                let wide = |(a, b): (&f32, &f32)| f64::from(*a) * f64::from(*b);
                let scores: Vec<f64> = seen
                    .clone()
                    .map(|key| {
                        let key = self.head(&self.k, key, head);
                        query.iter().zip(key).map(wide).sum::<f64>() * f64::from(self.scale())
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                out.extend((0..self.head_dim).map(|d| {
                    let values = seen.clone().map(|row| self.head(&self.v, row, head)[d]);
                    let products = values.zip(&weights).map(|(v, w)| f64::from(v) * w);
                    products.sum::<f64>() / sum.max(f64::MIN_POSITIVE)
                }));
            }
        }
        out
    }

    fn check(&self) {
        let exact = self.exact();
        for isa in Isa::available() {
            let bound = if isa.has_tiles() { BOUND_AMX } else { BOUND };
            let found = self.attend(isa, 2);
            for (at, (found, exact)) in found.iter().zip(&exact).enumerate() {
                let off = (f64::from(*found) - exact).abs();
                let (heads, dim, rows) = (self.heads, self.head_dim, self.rows);
                assert!(
                    off <= bound,
                    "{isa}: {heads} heads of {dim}, {rows} rows, {at}: {found}, not {exact}"
                );
            }
        }
    }
}

fn span(queries: Range<usize>, keys: Range<usize>) -> DenseSpan {
    DenseSpan { queries, keys }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Promise (Arithmetic): attention of a picture equals a softmax over its scores, for heads of 64, 72, 80, 88 and 128, all
/// rows and windows, on every instruction set.
#[test]
fn heads_of_towers_match_softmax_attention() {
    for head_dim in [64, 72, 80, 88, 128] {
        Picture::whole(2, head_dim, 200).check();
    }
    // Enough heads for longer parts.
    Picture::whole(17, 8, 200).check();
    for rows in [1, 15, 16, 63, 64, 65, 129] {
        Picture::whole(1, 72, rows).check();
    }
}

#[test]
fn windows_see_their_rows_alone() {
    // Windows cut at edges begin within tiles, groups and blocks.
    for edges in [
        vec![0, 64, 128],
        vec![0, 1, 8, 40, 72, 73, 201, 300],
        vec![0, 130, 131],
    ] {
        let windows = edges
            .windows(2)
            .map(|edge| span(edge[0]..edge[1], edge[0]..edge[1]));
        let rows = *edges.last().unwrap();
        Picture::new(2, 80, rows, windows.collect()).check();
    }
    // Queries of one part of a picture, keys of another; rows between are not computed.
    Picture::new(
        1,
        64,
        150,
        vec![span(3..20, 100..150), span(90..97, 31..33)],
    )
    .check();
}

/// The reference has `exp2` of the C library; scores of the columns are up to far below their maxima.
#[test]
fn weights_are_those_of_the_reference() {
    let (keys, cols) = (37, 32);
    let mut found = Isa::available().map(|isa| {
        let mut noise = Noise(6);
        let mut scores: Vec<f32> = noise.take(keys * cols, 60.0);
        scores[cols + 3] = -200.0;
        let mut maxima = vec![f32::NEG_INFINITY; cols / 2];
        maxima.resize(cols, 20.0);
        let (mut sums, mut values) = (noise.take(cols, 1.0), noise.take(5 * cols, 2.0));
        super::vectors::weigh(isa, &mut scores, &mut maxima, &mut sums, &mut values);
        (isa, [scores, maxima, sums, values].concat())
    });
    let (_, wanted) = found.next().unwrap();
    for (isa, found) in found {
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            let bound = wanted.abs() * 2e-6 + 1e-37;
            assert!(
                (found - wanted).abs() <= bound,
                "{isa}, {at}: {found}, {wanted}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Promise (Arithmetic): a picture's attention has the same bits for every cut into calls and for every number of threads.
    #[test]
    fn a_query_has_the_same_bits_in_every_call(
        // Nine heads are enough for longer parts on one thread.
        heads in prop::sample::select(vec![1usize, 2, 3, 9]),
        head_dim in prop::sample::select(vec![8usize, 20, 64, 72]),
        rows in 1usize..220,
        cuts in prop::collection::vec(0usize..220, 0..5),
        first_key in 0usize..220,
    ) {
        let keys = first_key % rows..rows;
        let picture = Picture::new(heads, head_dim, rows, vec![span(0..rows, keys.clone())]);
        let width = heads * head_dim;
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % rows).chain([0, rows]).collect();
        cuts.sort_unstable();
        for isa in Isa::available() {
            let whole = bits(&picture.attend(isa, 1));
            let mut pool = Pool::new(3);
            let mut dense = picture.stored(isa, &mut pool, 1);
            let mut parts = Vec::new();
            for cut in cuts.windows(2) {
                let q = &picture.q[cut[0] * width..cut[1] * width];
                let mut out = vec![0.0; q.len()];
                let spans = [span(0..cut[1] - cut[0], keys.clone())];
                dense.attend(&mut pool, &spans, picture.scale(), q, &mut out);
                parts.extend(bits(&out));
            }
            prop_assert_eq!(&parts, &whole, "{}", isa);
        }
    }
}

#[test]
#[should_panic(expected = "keys 3..9 of 8 rows")]
fn keys_beyond_the_picture_are_refused() {
    Picture::new(1, 8, 8, vec![span(0..1, 3..9)]).attend(Isa::scalar(), 1);
}

#[test]
#[should_panic(expected = "no whole tiles")]
fn rows_are_stored_in_whole_tiles() {
    let picture = Picture::whole(1, 8, 100);
    let pool = &mut Pool::new(1);
    let mut dense = picture.stored(Isa::scalar(), pool, 1);
    dense.store(pool, 0..32, &picture.k[..32 * 8], &picture.v[..32 * 8]);
}

/// The AMX path in plain Rust, with the same bits.
#[cfg(target_arch = "x86_64")]
mod amx_twin {
    use super::super::tiles::{BLOCK_KEYS, GROUP};
    use super::{Picture, bits, span};
    use crate::Isa;
    use crate::attention::tests::amx_reference::{add, nearest, weight_of_two};
    use crate::kv::LANES;

    /// A query or a key in bf16, of whole groups.
    fn padded(values: &[f32], factor: f32) -> Vec<f32> {
        let mut all: Vec<f32> = values.iter().map(|x| nearest(x * factor)).collect();
        all.resize(values.len().next_multiple_of(GROUP), 0.0);
        all
    }

    /// One head of a row.
    fn row_head(picture: &Picture, row: usize, head: usize) -> Vec<f32> {
        let query = padded(
            picture.head(&picture.q, row, head),
            picture.scale() * std::f32::consts::LOG2_E,
        );
        let seen = picture.seen(row).unwrap();
        let score = |at: usize| {
            if !seen.contains(&at) {
                return f32::NEG_INFINITY;
            }
            let key = padded(picture.head(&picture.k, at, head), 1.0);
            let mut sum = 0.0;
            for d in (0..query.len()).step_by(GROUP) {
                add(&mut sum, &key[d..d + GROUP], &query[d..d + GROUP]);
            }
            sum
        };
        let value = |at: usize, element: usize| {
            let is_there = at < picture.rows;
            if is_there {
                nearest(picture.head(&picture.v, at, head)[element])
            } else {
                0.0
            }
        };
        let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0f32);
        let mut values = vec![0.0; picture.head_dim];
        let (start, end) = (seen.start / GROUP * GROUP, seen.end.next_multiple_of(GROUP));
        for first in (start..end).step_by(BLOCK_KEYS) {
            let keys = first..end.min(first + BLOCK_KEYS);
            let scores: Vec<f32> = keys.clone().map(score).collect();
            let most = scores.iter().fold(max, |a, b| a.max(*b));
            let shift = if most == f32::NEG_INFINITY { 0.0 } else { most };
            let weights: Vec<f32> = scores
                .iter()
                .map(|score| nearest(weight_of_two(score - shift)))
                .collect();
            let mut part = 0.0;
            for group in weights.chunks(GROUP) {
                for i in 0..LANES {
                    part = part + group[i] + group[i + LANES];
                }
            }
            let factor = if most == max {
                1.0
            } else {
                weight_of_two(max - shift)
            };
            (max, sum) = (most, sum.mul_add(factor, part));
            for (element, sum) in values.iter_mut().enumerate() {
                *sum *= factor;
                let column: Vec<f32> = keys.clone().map(|at| value(at, element)).collect();
                for (values, weights) in column.chunks(GROUP).zip(weights.chunks(GROUP)) {
                    add(sum, values, weights);
                }
            }
        }
        values.iter().map(|value| value / sum).collect()
    }

    #[test]
    fn tiles_have_the_bits_of_their_twin() {
        let Some(isa) = Isa::amx() else { return };
        for (head_dim, rows, keys) in [(72, 70, 0..70), (64, 300, 0..300), (80, 200, 45..190)] {
            let picture = Picture::new(2, head_dim, rows, vec![span(0..rows, keys)]);
            let found = bits(&picture.attend(isa, 2));
            let rows = (0..rows).flat_map(|row| [(row, 0), (row, 1)]);
            let wanted: Vec<f32> = rows
                .flat_map(|(row, head)| row_head(&picture, row, head))
                .collect();
            assert!(found == bits(&wanted), "heads of {head_dim}");
        }
    }
}
