//! Conversion of rows, and how close the searched scales come.

use super::*;
use crate::{Format, Pool};

const COLS: usize = 512;

/// Sums of four uniform numbers: nearly normal, and different for each place.
fn weights(count: usize) -> Vec<f32> {
    let mut state = 7u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    std::iter::repeat_with(|| uniform() + uniform() + uniform() + uniform())
        .take(count)
        .collect()
}

/// Root of the mean squared error, beside the weights' own size.
fn error(format: Format, raw: &[u8], weights: &[f32]) -> f32 {
    let mut read = vec![0.0; weights.len()];
    dequantize(format, raw, &mut read);
    let squares = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|n| n * n).sum::<f32>();
    let off = squares(&mut read.iter().zip(weights).map(|(a, b)| a - b));
    (off / squares(&mut weights.iter().copied())).sqrt()
}

#[test]
fn searched_scales_have_smaller_errors_than_even_scales() {
    let weights = weights(64 * COLS);
    // The most that is left of the error, in parts of a thousand.
    for (format, most) in [
        (Format::Q4_K, 930),
        (Format::Q5_K, 985),
        (Format::Q6_K, 1000),
    ] {
        let spread = error(format, &quantize(format, &weights), &weights);
        let searched = error(format, &quantize_with_search(format, &weights), &weights);
        assert!(
            searched * 1000.0 <= spread * most as f32,
            "{format:?}: {searched} beside {spread}"
        );
    }
}

#[test]
fn blocks_without_integer_scales_are_equal_for_both_fits() {
    let weights = weights(COLS);
    for format in [Format::Q8_0, Format::F16, Format::BF16, Format::F32] {
        assert_eq!(
            quantize(format, &weights),
            quantize_with_search(format, &weights),
            "{format:?}"
        );
    }
    for format in [Format::Q4_K, Format::Q5_K, Format::Q6_K] {
        for value in [0.0, 0.25, -0.25] {
            let raw = quantize_with_search(format, &[value; 256]);
            let off = error(format, &raw, &[value; 256]);
            assert!(value == 0.0 || off < 0.01, "{format:?} {value}: {off}");
        }
    }
}

#[test]
fn requantized_rows_do_not_depend_on_threads() {
    let rows = 24;
    let weights = weights(rows * COLS);
    let raw = quantize(Format::BF16, &weights);
    let mut stored = vec![0.0; weights.len()];
    dequantize(Format::BF16, &raw, &mut stored);
    let turned = |row: usize| rows - 1 - row;
    for to in [Format::BF16, Format::Q8_0, Format::Q4_K] {
        let row_bytes = COLS / to.block_weights() * to.block_bytes();
        let whole = quantize_with_search(to, &stored);
        let expected: Vec<u8> = whole.chunks(row_bytes).rev().flatten().copied().collect();
        for threads in [1, 3] {
            let found = requantize_rows(
                &mut Pool::new(threads),
                (Format::BF16, &raw),
                COLS,
                to,
                turned,
            );
            assert_eq!(found.unwrap(), expected, "{to:?} on {threads}");
        }
    }
}

#[test]
fn non_finite_weight_is_reported() {
    for (at, bad) in [(3, f32::NAN), (COLS + 9, f32::INFINITY)] {
        let mut weights = weights(2 * COLS);
        weights[at] = bad;
        let raw = quantize(Format::F32, &weights);
        let converted = requantize_rows(
            &mut Pool::new(2),
            (Format::F32, &raw),
            COLS,
            Format::Q8_0,
            |row| row,
        );
        assert_eq!(converted, Err(NonFiniteWeight(at)));
    }
}
