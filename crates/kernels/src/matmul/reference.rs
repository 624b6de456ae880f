//! Reference implementations of the GEMV and GEMM kernels.

use crate::packing::{BLOCK, LANES, PackedFormat, read_float};
use crate::{Activations, Format};

/// Multiplies a panel of quants with rows `row..row + out.len()`.
pub(super) fn multiply_quants<P: PackedFormat>(
    panel: &[u8],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    let quant = P::QUANT;
    out.fill([0.0; LANES]);
    for (index, tile) in panel.chunks_exact(quant.tile_bytes()).enumerate() {
        for block in 0..quant.tile_blocks() {
            for lane in 0..LANES {
                let quants = quant.read_quants(tile, block, lane).map(u32::to_le_bytes);
                for (row, out) in (row..).zip(&mut *out) {
                    let x = &x.blocks(row)[index * quant.tile_blocks() + block];
                    for sub_block in 0..quant.sub_blocks_per_block() {
                        let (scale, shift) = quant.scale_and_shift(tile, block, sub_block, lane);
                        let part = sub_block * quant.sub_block_weights()
                            ..(sub_block + 1) * quant.sub_block_weights();
                        // Index 0 is the sum of the block, 1 and 2 are the sums of its halves.
                        let sum_index = if quant.sub_block_weights() == BLOCK {
                            0
                        } else {
                            1 + sub_block
                        };
                        let dot =
                            dot_product(&quants.as_flattened()[part.clone()], &x.quants[part])
                                + quant.zero() * x.negative_sum(sum_index);
                        let sum = &mut out[lane];
                        *sum = (dot as f32 * x.scale).mul_add(scale, *sum);
                        if quant.has_shift() {
                            *sum = x.scaled_sums[sum_index].mul_add(shift, *sum);
                        }
                    }
                }
            }
        }
    }
}

fn dot_product(quants: &[u8], x: &[i8]) -> i32 {
    quants
        .iter()
        .zip(x)
        .map(|(quant, x)| i32::from(*quant) * i32::from(*x))
        .sum()
}

/// Multiplies a panel of floats, of the format with number `F`, with rows `row..row + out.len()`.
pub(super) fn multiply_floats<const F: u8>(
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
                *sum = read_float(format, weight).mul_add(x[col], *sum);
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
