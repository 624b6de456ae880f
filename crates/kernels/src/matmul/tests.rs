//! Vector kernels against the reference implementation, the reference implementation against f64 arithmetic,
//! and rows in different batches.

mod groups;
mod streamed;

use crate::quant::{QuantBlock, QuantFormat};
use crate::{Activations, Format, Isa, Matrix, Pool, dequantize, matmul, quantize};
use half::f16;
use proptest::prelude::*;

pub(super) const FORMATS: [Format; 21] = [
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2_K,
    Format::Q3_K,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::IQ4_NL,
    Format::IQ4_XS,
    Format::IQ3_S,
    Format::IQ3_XXS,
    Format::IQ2_S,
    Format::IQ2_XS,
    Format::IQ2_XXS,
    Format::MXFP4,
];

/// A small deterministic random number generator for shapes and weights.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// A number in -1..1.
    fn unit(&mut self) -> f32 {
        self.bits() as f32 / (1u32 << 30) as f32 - 1.0
    }

    pub(super) fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// Bytes of weights with every quant and scale that the format can store.
    pub(super) fn raw(&mut self, format: Format, weights: usize) -> Vec<u8> {
        let Some(quant) = QuantFormat::of(format) else {
            return quantize(format, &self.floats(weights));
        };
        let mut raw = vec![0; weights / quant.weights * format.block_bytes()];
        for bytes in raw.chunks_exact_mut(format.block_bytes()) {
            bytes.fill_with(|| self.bits() as u8);
            if !format.is_written() {
                // The formats of patterns begin with `d`.
                let d = f16::from_f32(self.unit() / 64.0);
                bytes[..2].copy_from_slice(&d.to_le_bytes());
                continue;
            }
            let mut block = QuantBlock::default();
            block.decode(format, bytes);
            block.d = f16::from_f32(self.unit() / 64.0);
            block.m = f16::from_f32(self.unit() / 64.0);
            if format == Format::MXFP4 {
                block.scales[0] = (MXFP4_ONE - 8 + self.bits() as u8 % 8) as i8;
            }
            block.encode(format, bytes);
        }
        raw
    }
}

/// The byte of MXFP4 for a scale of 1.
const MXFP4_ONE: u8 = 128;

pub(super) fn columns(format: Format, units: usize) -> usize {
    if format.block_weights() == 1 {
        units * 13
    } else {
        units * format.block_weights()
    }
}

pub(super) fn product(w: &Matrix, threads: usize, isa: Isa, x: &[f32]) -> Vec<f32> {
    let rows = x.len() / w.cols();
    let mut pool = Pool::new(threads);
    let mut activations = Activations::new(rows, w.cols());
    activations.load(isa, &mut pool, x, rows, w.cols());
    let mut out = vec![f32::NAN; rows * w.rows()];
    matmul(&mut pool, w, &activations, &mut out);
    out
}

pub(super) fn pack(isa: Isa, format: Format, rows: usize, cols: usize, raw: &[u8]) -> Matrix {
    Matrix::pack(isa, &mut Pool::new(2), format, rows, cols, raw).expect("the sizes agree")
}

/// The first index where two results have different bits.
pub(super) fn difference(a: &[f32], b: &[f32]) -> Option<(usize, f32, f32)> {
    assert_eq!(a.len(), b.len());
    let at = a
        .iter()
        .zip(b)
        .position(|(a, b)| a.to_bits() != b.to_bits())?;
    Some((at, a[at], b[at]))
}

/// Levels that give the bits of the reference implementation for any number of rows.
fn batch_invariant_isas() -> impl Iterator<Item = Isa> {
    Isa::available().filter(|isa| isa.is_batch_invariant())
}

/// Every level with each number of rows.
fn isas_with(batches: [usize; 2]) -> impl Iterator<Item = (Isa, usize)> {
    Isa::available().flat_map(move |isa| batches.map(|batch| (isa, batch)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn levels_match_the_reference_bits(
        rows in 1usize..40, units in 1usize..5, batch in 1usize..20, threads in 1usize..4, seed: u64,
    ) {
        let mut random = Random(seed);
        for format in FORMATS {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let x = random.floats(batch * cols);
            let reference = product(&pack(Isa::scalar(), format, rows, cols, &raw), 1, Isa::scalar(), &x);
            for isa in batch_invariant_isas() {
                let fast = product(&pack(isa, format, rows, cols, &raw), threads, isa, &x);
                prop_assert_eq!(difference(&fast, &reference), None, "{:?} {}", format, isa);
            }
        }
    }

    #[test]
    fn row_bits_do_not_depend_on_the_batch(
        rows in 1usize..40, units in 1usize..5, seed: u64,
        batch in prop::collection::vec(0usize..8, 1..20),
    ) {
        let mut random = Random(seed);
        for format in FORMATS {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let x = random.floats(8 * cols);
            let mixed: Vec<f32> =
                batch.iter().flat_map(|&row| x[row * cols..][..cols].to_vec()).collect();
            for isa in batch_invariant_isas() {
                let w = pack(isa, format, rows, cols, &raw);
                let together = product(&w, 2, isa, &mixed);
                for (out, &row) in together.chunks(rows).zip(&batch) {
                    let alone = product(&w, 1, isa, &x[row * cols..][..cols]);
                    prop_assert_eq!(difference(out, &alone), None, "{:?} {}", format, isa);
                }
            }
        }
    }

    #[test]
    fn reference_is_the_dot_product_within_activation_rounding(
        rows in 1usize..20, units in 1usize..6, seed: u64,
    ) {
        let mut random = Random(seed);
        for format in FORMATS {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let mut weights = vec![0.0; rows * cols];
            dequantize(format, &raw, &mut weights);
            let x = random.floats(cols);
            let w = pack(Isa::scalar(), format, rows, cols, &raw);
            for (out, weights) in product(&w, 1, Isa::scalar(), &x).iter().zip(weights.chunks(cols)) {
                let (expected, bound) = exact(format, weights, &x);
                let off = (f64::from(*out) - expected).abs();
                prop_assert!(off <= bound, "{format:?}: {out} for {expected}, bound {bound}");
            }
        }
    }

    #[test]
    fn dequantized_rows_match_the_format(
        rows in 1usize..40, units in 1usize..5, seed: u64,
    ) {
        let mut random = Random(seed);
        for format in FORMATS {
            let cols = columns(format, units);
            let raw = random.raw(format, rows * cols);
            let mut weights = vec![0.0; rows * cols];
            dequantize(format, &raw, &mut weights);
            let w = pack(Isa::best(), format, rows, cols, &raw);
            for (row, weights) in weights.chunks(cols).enumerate() {
                let mut out = vec![f32::NAN; cols];
                w.row(row, &mut out);
                prop_assert_eq!(difference(&out, weights), None, "{:?} row {}", format, row);
            }
        }
    }
}

/// The dot product in f64, and the permitted distance of a kernel's result: half a quantization step of an
/// activation times the weight (for formats with int8 activations), and f32 rounding of a sum of that many
/// terms.
fn exact(format: Format, weights: &[f32], x: &[f32]) -> (f64, f64) {
    let mut sum = 0.0;
    let mut bound = 1e-6;
    for (weights, x) in weights.chunks(32).zip(x.chunks(32)) {
        let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let step = if QuantFormat::of(format).is_some() {
            f64::from(most / 127.0)
        } else {
            0.0
        };
        for (w, x) in weights.iter().zip(x) {
            let (w, x) = (f64::from(*w), f64::from(*x));
            sum += w * x;
            bound += w.abs() * (0.501 * step + x.abs() * 2e-6);
            if format.block_weights() == 256 || format == Format::Q4_1 || format == Format::Q5_1 {
                // A shift is summed separately from the value that it offsets, and both may be larger than the
                // difference.
                bound += 1e-4 * f64::from(most);
            }
        }
    }
    (sum, bound)
}

/// More columns than a K-block, more rows than a kernel call, and a last panel that is unpaired and incomplete.
#[test]
fn many_rows_and_columns_match_the_reference_bits() {
    let (rows, batch) = (37, 131);
    let mut random = Random(11);
    for format in FORMATS {
        let cols = columns(format, 1).next_multiple_of(1 << 10) + columns(format, 1);
        let raw = random.raw(format, rows * cols);
        let x = random.floats(batch * cols);
        let w = pack(Isa::scalar(), format, rows, cols, &raw);
        let reference = product(&w, 2, Isa::scalar(), &x);
        for isa in batch_invariant_isas() {
            let fast = product(&pack(isa, format, rows, cols, &raw), 2, isa, &x);
            assert_eq!(difference(&fast, &reference), None, "{format:?} {isa}");
        }
    }
}

/// Every remainder of the rows of a kernel call, and a last panel that is unpaired and incomplete.
#[test]
fn any_number_of_rows_matches_the_reference_bits() {
    let rows = 37;
    let mut random = Random(12);
    for format in FORMATS {
        let cols = columns(format, 3);
        let raw = random.raw(format, rows * cols);
        let x = random.floats(20 * cols);
        let w = pack(Isa::scalar(), format, rows, cols, &raw);
        let reference = product(&w, 1, Isa::scalar(), &x);
        for isa in batch_invariant_isas() {
            let w = pack(isa, format, rows, cols, &raw);
            for batch in 1..=20 {
                let fast = product(&w, 1, isa, &x[..batch * cols]);
                let reference = &reference[..batch * rows];
                assert_eq!(
                    difference(&fast, reference),
                    None,
                    "{format:?} {isa} {batch}"
                );
            }
        }
    }
}

/// Activations so wide that a second-level cache holds few rows: calls of eight and nine rows.
#[test]
fn few_wide_rows_match_the_reference_bits() {
    let (rows, batch, cols) = (17, 17, 48 << 10);
    let mut random = Random(13);
    for format in [Format::Q8_0, Format::Q4_K, Format::Q6_K] {
        let raw = random.raw(format, rows * cols);
        let x = random.floats(batch * cols);
        let w = pack(Isa::scalar(), format, rows, cols, &raw);
        let reference = product(&w, 2, Isa::scalar(), &x);
        for isa in batch_invariant_isas() {
            let fast = product(&pack(isa, format, rows, cols, &raw), 2, isa, &x);
            assert_eq!(difference(&fast, &reference), None, "{format:?} {isa}");
        }
    }
}

/// Rows of a call of the GEMV and of the GEMM kernels.
const FEW_AND_MANY: [usize; 2] = [1, 13];

#[test]
fn largest_quants_and_activations_do_not_saturate() {
    for format in FORMATS
        .into_iter()
        .filter(|format| QuantFormat::of(*format).is_some())
    {
        for (label, byte) in [("ones", 0xff), ("zeros", 0), ("sign", 0x80)] {
            let mut raw = vec![byte; format.block_bytes()];
            if format.is_written() {
                let mut block = QuantBlock::default();
                block.decode(format, &raw);
                (block.d, block.m) = (f16::ONE, f16::ONE);
                if format == Format::MXFP4 {
                    block.scales[0] = MXFP4_ONE as i8;
                }
                block.encode(format, &mut raw);
            } else {
                raw[..2].copy_from_slice(&f16::ONE.to_le_bytes());
            }
            let cols = format.block_weights();
            for signs in [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]] {
                let x: Vec<f32> = (0..cols).map(|i| signs[i % 2]).collect();
                let mut weights = vec![0.0; cols];
                dequantize(format, &raw, &mut weights);
                let expected: f32 = weights.iter().zip(&x).map(|(w, x)| w * x).sum();
                for (isa, batch) in isas_with(FEW_AND_MANY) {
                    let w = pack(isa, format, 1, cols, &raw);
                    for out in product(&w, 1, isa, &x.repeat(batch)) {
                        let off = (out - expected).abs();
                        assert!(
                            off <= expected.abs() * 1e-5 + 0.5,
                            "{format:?} {label} {isa} {batch}: {out} for {expected}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn non_finite_activations_affect_their_own_row_only() {
    let mut random = Random(7);
    for format in FORMATS {
        let cols = 256;
        let raw = random.raw(format, 17 * cols);
        let x = random.floats(13 * cols);
        for non_finite in [f32::NAN, f32::INFINITY] {
            let mut spoilt = x.clone();
            spoilt[cols + 40] = non_finite;
            for (isa, batch) in isas_with([3, 13]) {
                let w = pack(isa, format, 17, cols, &raw);
                let [clean, out] = [&x, &spoilt].map(|x| product(&w, 1, isa, &x[..batch * cols]));
                let case = format!("{format:?} {isa} {batch}");
                assert!(out[17..34].iter().all(|out| !out.is_finite()), "{case}");
                assert_eq!(difference(&out[..17], &clean[..17]), None, "{case}");
                assert_eq!(difference(&out[34..], &clean[34..]), None, "{case}");
            }
        }
    }
}

#[test]
fn non_finite_weights_do_not_panic() {
    for format in FORMATS {
        let raw = vec![0xff; 256 / format.block_weights() * format.block_bytes() * 3];
        for isa in Isa::available() {
            let w = pack(isa, format, 3, 256, &raw);
            assert_eq!(product(&w, 1, isa, &[1.0; 256]).len(), 3);
        }
    }
}

#[test]
fn empty_shapes_give_empty_or_zero_outputs() {
    for isa in Isa::available() {
        let no_rows = pack(isa, Format::Q4_0, 0, 64, &[]);
        assert_eq!(product(&no_rows, 2, isa, &[1.0; 128]), []);
        let no_columns = pack(isa, Format::Q4_0, 3, 0, &[]);
        let mut out = [1.0; 3];
        let mut activations = Activations::new(1, 0);
        let pool = &mut Pool::new(2);
        activations.load(isa, pool, &[], 1, 0);
        matmul(pool, &no_columns, &activations, &mut out);
        assert_eq!(out, [0.0; 3]);
    }
}
