//! AMX kernels against a reference implementation in plain Rust, against f64 arithmetic, and rows in different
//! batches. Without AMX nothing is tested.

use crate::layout::activation_block::ZERO_POINT_LOG2;
use crate::layout::tiles::{
    AMX_ROWS_MIN, Int8KBlock, K_BLOCK_COLS, TILE_ROWS, fits_int8, quantize_k_block,
};
use crate::matmul::tests::{FORMATS, Random, columns, difference, pack, product};
use crate::packing::{BLOCK, LANES};
use crate::quant::QuantFormat;
use crate::{Format, Isa, Matrix, dequantize};
use half::bf16;
use proptest::prelude::*;

/// Tensor formats with AMX kernels.
fn formats() -> impl Iterator<Item = Format> {
    FORMATS.into_iter().filter(|format| *format != Format::F32)
}

/// Reference implementation of the AMX kernels, except for denormals: AMX flushes them to zero.
fn reference(w: &Matrix, x: &[f32]) -> Vec<f32> {
    if fits_int8(w.format()) {
        return reference_int8(w, x);
    }
    let weights: Vec<Vec<f32>> = (0..w.rows()).map(|row| rounded_row(w, row)).collect();
    let mut out = Vec::new();
    for x in x.chunks(w.cols()) {
        let x: Vec<f32> = x.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
        out.extend(weights.iter().map(|weights| tile_sum(weights, &x)));
    }
    out
}

/// int8 kernels: 256 columns at a time.
fn reference_int8(w: &Matrix, x: &[f32]) -> Vec<f32> {
    let weights: Vec<Vec<Int8KBlock>> = (0..w.rows()).map(|row| requantized_row(w, row)).collect();
    let mut out = Vec::new();
    for x in x.chunks(w.cols()) {
        let x: Vec<Int8KBlock> = x.chunks(K_BLOCK_COLS).map(quantize_k_block).collect();
        out.extend(weights.iter().map(|weights| {
            weights.iter().zip(&x).fold(0.0f32, |sum, (w, x)| {
                let product = |(w, x): (&i8, &i8)| i32::from(*w) * i32::from(*x);
                let whole: i32 = w.quants.iter().zip(&x.quants).map(product).sum();
                (whole as f32).mul_add(x.scale * w.scale, sum)
            })
        }));
    }
    out
}

/// A row of weights requantized to int8.
fn requantized_row(w: &Matrix, row: usize) -> Vec<Int8KBlock> {
    let quant = QuantFormat::of(w.format()).unwrap();
    let lift = quant.zero_log2.map_or(0, |log2| ZERO_POINT_LOG2 - log2);
    let zero = quant.zero_log2.map_or(0.0, |_| 128.0);
    let highest = (u32::from(quant.quant_max()) << lift) as f32;
    let (panel, lane) = (w.panels_view().panel(row / LANES), row % LANES);
    let tile = |block: usize| {
        let tile = &panel[block / quant.tile_blocks() * quant.tile_bytes()..];
        (tile, block % quant.tile_blocks())
    };
    let blocks: Vec<usize> = (0..w.cols() / BLOCK).collect();
    let chunk = |blocks: &[usize]| {
        let mut most = 0.0f32;
        let mut parts = Vec::new();
        for &block in blocks {
            let (tile, block) = tile(block);
            let quants = quant.read_quants(tile, block, lane).map(u32::to_le_bytes);
            let subs = quants.as_flattened().chunks(quant.sub_block_weights());
            for (sub, quants) in subs.enumerate() {
                let (scale, shift) = quant.scale_and_shift(tile, block, sub, lane);
                let scale = scale / (1 << lift) as f32;
                let lowest = scale.mul_add(-zero, shift);
                let ends = [lowest, scale.mul_add(highest, lowest)];
                most = ends.iter().fold(most, |most, end| most.max(end.abs()));
                parts.push((scale, lowest, quants.to_vec()));
            }
        }
        let unit = 126.0 * 256.0 / most;
        let quants = parts.iter().flat_map(|(scale, lowest, quants)| {
            let factor = (scale * unit).round_ties_even() as i32;
            let offset = (lowest * unit).round_ties_even() as i32 + 128;
            quants.iter().map(move |quant_value| {
                let word = (i32::from(*quant_value) << lift) * factor + offset;
                assert_eq!(word, i32::from(word as i16), "it fits");
                (word >> 8) as i8
            })
        });
        let mut all = [0; K_BLOCK_COLS];
        all.iter_mut()
            .zip(quants)
            .for_each(|(to, quant_value)| *to = quant_value);
        Int8KBlock {
            scale: most * (1.0 / 126.0),
            quants: all,
        }
    };
    blocks.chunks(K_BLOCK_COLS / BLOCK).map(chunk).collect()
}

/// Order of additions of `TDPBF16PS`.
fn tile_sum(weights: &[f32], x: &[f32]) -> f32 {
    let mut sum = 0.0;
    for (weights, x) in weights.chunks(BLOCK).zip(x.chunks(BLOCK)) {
        let mut parts = [0.0f32; 2];
        for (i, (w, x)) in weights.iter().zip(x).enumerate() {
            parts[i % 2] = w.mul_add(*x, parts[i % 2]);
        }
        sum += parts[0] + parts[1];
    }
    sum
}

/// A row of weights rounded to bf16.
fn rounded_row(w: &Matrix, row: usize) -> Vec<f32> {
    let Some(quant) = QuantFormat::of(w.format()) else {
        let mut weights = vec![0.0; w.cols()];
        w.row(row, &mut weights);
        return weights.into_iter().map(nearest).collect();
    };
    let (panel, lane) = (w.panels_view().panel(row / LANES), row % LANES);
    let lift = quant.zero_log2.map_or(0, |log2| ZERO_POINT_LOG2 - log2);
    let mut weights = Vec::new();
    for block in 0..w.cols() / BLOCK {
        let tile = &panel[block / quant.tile_blocks() * quant.tile_bytes()..];
        let block = block % quant.tile_blocks();
        let quants = quant.read_quants(tile, block, lane).map(u32::to_le_bytes);
        let per_sub = quants.as_flattened().chunks(quant.sub_block_weights());
        for (sub, quants) in per_sub.enumerate() {
            let (scale, shift) = quant.scale_and_shift(tile, block, sub, lane);
            let scale = scale / (1 << lift) as f32;
            let zero = if quant.zero_log2.is_some() {
                128.0
            } else {
                0.0
            };
            let middle = scale * -(256.0 + zero);
            let offset = if quant.has_shift() {
                middle + shift
            } else {
                middle
            };
            let quant_value = |quant_value: u8| 256.0 + (u32::from(quant_value) << lift) as f32;
            weights.extend(
                quants
                    .iter()
                    .map(|c| nearest(quant_value(*c).mul_add(scale, offset))),
            );
        }
    }
    weights
}

/// The nearest bf16, ties away from zero.
fn nearest(weight: f32) -> f32 {
    f32::from_bits((weight.to_bits() + 0x8000) & 0xffff_0000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn amx_kernels_match_the_reference_bits(
        rows in 1usize..70, units in 1usize..5, batch in AMX_ROWS_MIN..100, threads in 1usize..4, seed: u64,
    ) {
        let Some(isa) = Isa::amx() else { return Ok(()) };
        let mut random = Random(seed);
        for format in formats() {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let x = random.floats(batch * cols);
            let w = pack(isa, format, rows, cols, &raw);
            let fast = product(&w, threads, isa, &x);
            prop_assert_eq!(difference(&fast, &reference(&w, &x)), None, "{:?}", format);
        }
    }

    #[test]
    fn few_rows_match_the_vector_kernels(
        rows in 1usize..40, units in 1usize..4, batch in 1..AMX_ROWS_MIN, seed: u64,
    ) {
        let Some(isa) = Isa::amx() else { return Ok(()) };
        let mut random = Random(seed);
        for format in FORMATS {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let x = random.floats(batch * cols);
            let [steady, tiles] = [Isa::best(), isa]
                .map(|isa| product(&pack(isa, format, rows, cols, &raw), 2, isa, &x));
            prop_assert_eq!(difference(&tiles, &steady), None, "{:?}", format);
        }
    }

    #[test]
    fn row_bits_do_not_depend_on_other_rows(
        rows in 1usize..40, units in 1usize..4, seed: u64,
        batch in prop::collection::vec(0usize..20, AMX_ROWS_MIN..60),
    ) {
        let Some(isa) = Isa::amx() else { return Ok(()) };
        let mut random = Random(seed);
        for format in formats() {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let x = random.floats(20 * cols);
            let mixed: Vec<f32> =
                batch.iter().flat_map(|&row| x[row * cols..][..cols].to_vec()).collect();
            let w = pack(isa, format, rows, cols, &raw);
            let (together, other) = (product(&w, 2, isa, &mixed), product(&w, 1, isa, &x));
            for (out, &row) in together.chunks(rows).zip(&batch) {
                prop_assert_eq!(difference(out, &other[row * rows..][..rows]), None, "{:?}", format);
            }
        }
    }

    /// Permitted distance between AMX and vector kernels.
    #[test]
    fn amx_results_are_the_dot_product_within_rounding(
        rows in 1usize..20, units in 1usize..5, seed: u64,
    ) {
        let Some(isa) = Isa::amx() else { return Ok(()) };
        let mut random = Random(seed);
        for format in formats() {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let mut weights = vec![0.0; rows * cols];
            dequantize(format, &raw, &mut weights);
            let x = random.floats(TILE_ROWS * cols);
            let out = product(&pack(isa, format, rows, cols, &raw), 1, isa, &x);
            for (out, x) in out.chunks(rows).zip(x.chunks(cols)) {
                for (out, weights) in out.iter().zip(weights.chunks(cols)) {
                    let (mut sum, mut size) = (0.0, 0.0);
                    for (w, x) in weights.iter().zip(x) {
                        let product = f64::from(*w) * f64::from(*x);
                        (sum, size) = (sum + product, size + product.abs());
                    }
                    let bound = if fits_int8(format) {
                        int8_bound(weights, x)
                    } else {
                        // Half a unit in the eighth bit of each factor.
                        size / 120.0 + largest(weights) * cols as f64 * 1e-4
                    };
                    let off = (f64::from(*out) - sum).abs();
                    prop_assert!(off <= bound, "{format:?}: {out} for {sum}, bound {bound}");
                }
            }
        }
    }
}

/// Half a step of the activations and four fifths of a step of the weights, each times the largest other
/// factor. The weights' step follows from the largest value that the quants could represent, at most twice the
/// actual largest.
fn int8_bound(weights: &[f32], x: &[f32]) -> f64 {
    let chunks = weights.chunks(K_BLOCK_COLS).zip(x.chunks(K_BLOCK_COLS));
    let bound = chunks.map(|(weights, x)| {
        let [w_most, x_most] = [largest(weights), largest(x)];
        let sum = |all: &[f32]| all.iter().map(|one| f64::from(one.abs())).sum::<f64>();
        sum(weights) * x_most / 127.0 * 0.51 + 1.01 * sum(x) * 2.0 * w_most / 126.0 * 0.8
    });
    bound.sum()
}

fn largest(all: &[f32]) -> f64 {
    f64::from(all.iter().fold(0.0f32, |most, one| most.max(one.abs())))
}

/// Several slabs, several groups, more rows than a kernel call, and a last panel that is unpaired and
/// incomplete.
#[test]
fn large_shapes_match_the_reference_bits() {
    let Some(isa) = Isa::amx() else { return };
    let mut random = Random(11);
    for (format, rows, cols, batch) in [
        (Format::Q4_K, 37, 4096, 530),
        (Format::Q8_0, 1000, 96, 40),
        (Format::Q6_K, 37, 2304, 131),
        (Format::F16, 37, 1999, 131),
        (Format::BF16, 17, 1111, 531),
    ] {
        let raw = random.raw(format, rows * cols);
        let x = random.floats(batch * cols);
        let w = pack(isa, format, rows, cols, &raw);
        let fast = product(&w, 3, isa, &x);
        assert_eq!(difference(&fast, &reference(&w, &x)), None, "{format:?}");
    }
}

#[test]
fn non_finite_activations_affect_their_own_row_only() {
    let Some(isa) = Isa::amx() else { return };
    let mut random = Random(7);
    let (rows, cols, batch) = (17, 256, 20);
    for format in formats() {
        let raw = random.raw(format, rows * cols);
        let x = random.floats(batch * cols);
        for non_finite in [f32::NAN, f32::INFINITY] {
            let mut spoilt = x.clone();
            spoilt[cols + 40] = non_finite;
            let w = pack(isa, format, rows, cols, &raw);
            let (clean, out) = (product(&w, 1, isa, &x), product(&w, 1, isa, &spoilt));
            assert!(
                out[rows..2 * rows].iter().all(|out| !out.is_finite()),
                "{format:?}"
            );
            for rest in [0..rows, 2 * rows..batch * rows] {
                assert_eq!(
                    difference(&out[rest.clone()], &clean[rest]),
                    None,
                    "{format:?}"
                );
            }
        }
    }
}

#[test]
fn non_finite_weights_do_not_panic() {
    let Some(isa) = Isa::amx() else { return };
    for format in formats() {
        let raw = vec![0xff; 256 / format.block_weights() * format.block_bytes() * 3];
        let w = pack(isa, format, 3, 256, &raw);
        assert_eq!(product(&w, 1, isa, &[1.0; 256 * 16]).len(), 48);
    }
}
