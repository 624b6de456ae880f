//! What every kernel computes, in plain Rust.

use crate::packing::{BLOCK, LANES, Packing, float};
use crate::{Activations, Format};

/// A panel of codes times rows `row..row + out.len()`.
pub(super) fn codes<P: Packing>(
    panel: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    let scheme = P::SCHEME;
    out.fill([0.0; LANES]);
    for (index, tile) in panel.chunks_exact(scheme.tile_bytes()).enumerate() {
        for block in 0..scheme.tile_blocks() {
            for lane in 0..LANES {
                let codes = scheme.codes(tile, block, lane).map(u32::to_le_bytes);
                for (row, out) in (row..).zip(&mut *out) {
                    let x = &x.blocks(row)[index * scheme.tile_blocks() + block];
                    for sub in 0..scheme.block_subs() {
                        let (scale, shift) = scheme.affine(tile, block, sub, lane);
                        let part = sub * scheme.sub_weights()..(sub + 1) * scheme.sub_weights();
                        // Sums of the whole are first, then those of the halves.
                        let which = if scheme.sub_weights() == BLOCK {
                            0
                        } else {
                            1 + sub
                        };
                        let dot = dot(&codes.as_flattened()[part.clone()], &x.codes[part])
                            + scheme.zero() * x.minus_sum(which);
                        let sum = &mut out[lane];
                        *sum = (dot as f32 * x.scale).mul_add(scale, *sum);
                        if scheme.has_shift() {
                            *sum = x.moments[which].mul_add(shift, *sum);
                        }
                    }
                }
            }
        }
    }
}

fn dot(codes: &[u8], x: &[i8]) -> i32 {
    codes
        .iter()
        .zip(x)
        .map(|(code, x)| i32::from(*code) * i32::from(*x))
        .sum()
}

/// A panel of floats, of the format whose number is `F`, times rows `row..row + out.len()`.
pub(super) fn floats<const F: u8>(
    panel: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    let format = const { float_format(F) };
    let width = format.block_bytes();
    for (row, out) in (row..).zip(out) {
        let x = x.floats(row);
        let mut sums = [[0.0f32; LANES]; 2];
        for (col, weights) in panel.chunks_exact(LANES * width).enumerate() {
            for (sum, weight) in sums[col % 2].iter_mut().zip(weights.chunks_exact(width)) {
                *sum = float(format, weight).mul_add(x[col], *sum);
            }
        }
        *out = std::array::from_fn(|lane| sums[0][lane] + sums[1][lane]);
    }
}

const fn float_format(number: u8) -> Format {
    match number {
        n if n == Format::F32 as u8 => Format::F32,
        n if n == Format::F16 as u8 => Format::F16,
        _ => Format::BF16,
    }
}
