//! Activations loaded on every level.

use super::*;
use crate::Format;
use crate::layout::activation_block::{MAGIC, MAX_ABS_MIN, ZERO_BLOCK};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn load(isa: Isa, threads: usize, x: &[f32], rows: usize, cols: usize) -> Activations {
    let mut activations = Activations::new(rows, cols);
    activations.load(isa, &mut Pool::new(threads), x, rows, cols);
    activations
}

proptest! {
    #[test]
    fn quants_are_nearest_and_sums_match(
        x in prop::collection::vec(-8.0f32..8.0, 1..200),
    ) {
        let loaded = load(Isa::best(), 1, &x, 1, x.len());
        prop_assert_eq!(&loaded.floats(0)[..x.len()], &x[..]);
        for (block, x) in loaded.blocks(0).iter().zip(x.chunks(BLOCK)) {
            let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            prop_assert!((block.scale - most / 127.0).abs() <= most * 1e-8);
            prop_assert_eq!(f64::from(block.minus_magic), -f64::from(MAGIC) * f64::from(block.scale));
            for (code, x) in block.quants.iter().zip(x) {
                let off = (f32::from(*code) * block.scale - x).abs();
                prop_assert!(off <= block.scale * 0.5001, "{x} as {code} of {}", block.scale);
            }
            let sum = |codes: &[i8]| codes.iter().map(|code| i32::from(*code)).sum::<i32>();
            let sums = [sum(&block.quants), sum(&block.quants[..16]), sum(&block.quants[16..])];
            prop_assert_eq!([0, 1, 2].map(|which| -block.negative_sum(which)), sums);
            prop_assert_eq!(block.scaled_sums, sums.map(|sum| sum as f32 * block.scale));
        }
    }

    #[test]
    fn loaded_bits_do_not_depend_on_level_or_threads(
        rows in 1usize..6, cols in 1usize..2000, seed: u32,
    ) {
        let x: Vec<f32> = (0..rows * cols)
            .map(|i| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) as i32) as f32 * 1e-9)
            .collect();
        let expected = load(Isa::scalar(), 1, &x, rows, cols);
        for isa in Isa::available() {
            let loaded = load(isa, 3, &x, rows, cols);
            for row in 0..rows {
                prop_assert_eq!(loaded.blocks(row), expected.blocks(row));
                prop_assert_eq!(loaded.floats(row), expected.floats(row));
            }
        }
    }
}

#[test]
fn non_finite_block_is_marked_alone() {
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let mut x = vec![1.0; 96];
        x[40] = odd;
        for isa in Isa::available() {
            let loaded = load(isa, 1, &x, 1, 96);
            assert!(loaded.blocks(0)[1].scale.is_nan());
            assert_eq!(loaded.blocks(0)[1].quants, [0; BLOCK]);
            assert_eq!(loaded.blocks(0)[0].quants, [127; BLOCK]);
            assert_eq!(loaded.blocks(0)[3], ZERO_BLOCK);
        }
    }
}

#[test]
fn sizes_near_the_ends_of_f32_neither_overflow_nor_divide_by_zero() {
    for size in [1e33, 1e-34, 1e-36, f32::MIN_POSITIVE, 1e-45, 0.0] {
        let loaded = load(Isa::best(), 1, &[size; 32], 1, 32);
        let code = if size > MAX_ABS_MIN { 127 } else { 0 };
        assert_eq!(loaded.blocks(0)[0].quants, [code; BLOCK], "{size}");
        let block = &loaded.blocks(0)[0];
        assert!(
            block.scale.is_finite() && block.minus_magic.is_finite(),
            "{size}"
        );
    }
}

#[test]
fn bytes_equal_the_allocated_buffers() {
    let activations = Activations::new(7, 100);
    let held = |all: &Activations| {
        size_of_val(&all.blocks[..])
            + size_of_val(&all.floats[..])
            + size_of_val(&all.int8_lines[..])
            + size_of_val(&all.int8_scales[..])
    };
    assert_eq!(Activations::bytes(7, 100), held(&activations));
    assert_eq!(
        Activations::bytes(70, 999),
        held(&Activations::new(70, 999))
    );
}

#[test]
fn failed_load_and_new_formats_leave_no_rows() {
    for isa in Isa::available() {
        let mut activations = Activations::new(32, 448);
        let pool = &mut Pool::new(2);
        activations.load(isa, pool, &[1.0; 17 * 256], 17, 256);
        assert_eq!(activations.rows(), 17);
        // The second row does not exist: a worker panics while the buffers are being filled.
        let gather = AssertUnwindSafe(|| {
            activations.load_gathered(isa, pool, &[1.0; 448], &[0, 7], 448);
        });
        assert!(catch_unwind(gather).is_err());
        assert_eq!(activations.rows(), 0);
        activations.load(isa, pool, &[1.0; 17 * 256], 17, 256);
        let activations = activations.for_weights([Format::Q8_0]);
        assert_eq!(activations.rows(), 0, "tiles of other forms");
    }
}
