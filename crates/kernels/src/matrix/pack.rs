//! From a tensor's bytes to panels.

use super::{panel_bytes, row_bytes};
use crate::packing::LANES;
use crate::pool::DisjointSlice;
use crate::quant::{QuantBlock, QuantFormat, with_constant_format};
use crate::{Format, Pool};
use std::array;

/// Columns of floats that are packed at a time.
const FLOAT_COLS: usize = 64;

/// Packs a matrix whose size was checked; `out` is zero at first.
pub(super) fn pack_panels(
    pool: &mut Pool,
    format: Format,
    (rows, cols): (usize, usize),
    raw: &[u8],
    out: &mut [u8],
) {
    let (row_bytes, panel_bytes) = (row_bytes(format, cols), panel_bytes(format, cols));
    let panels = rows.div_ceil(LANES);
    let out = DisjointSlice::new(&mut out[..panels * panel_bytes]);
    pool.ranges(panels, 1, |range| {
        for panel in range {
            #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint panels")]
            // SAFETY: each panel is in one worker's range.
            let out = unsafe { out.part(panel * panel_bytes..(panel + 1) * panel_bytes) };
            let last = rows.min((panel + 1) * LANES);
            let raw = &raw[panel * LANES * row_bytes..last * row_bytes];
            pack_panel(format, raw, row_bytes, out);
        }
    });
}

/// Packs up to sixteen rows; `out` is zero at first.
pub(super) fn pack_panel(format: Format, raw: &[u8], row_bytes: usize, out: &mut [u8]) {
    with_constant_format!(format, |FORMAT| match QuantFormat::of(FORMAT) {
        Some(quant) => pack_quants(FORMAT, &quant, (raw, row_bytes), out),
        None if format == Format::F32 => pack_floats::<4>(raw, row_bytes, out),
        None => pack_floats::<2>(raw, row_bytes, out),
    });
}

/// Packs blocks of up to sixteen rows. Compiled for each format, so that positions of bits are constants: loading a model
/// is as fast as this.
#[inline(always)]
fn pack_quants(
    format: Format,
    quant: &QuantFormat,
    (raw, row_bytes): (&[u8], usize),
    out: &mut [u8],
) {
    let mut blocks: [QuantBlock; LANES] = array::from_fn(|_| QuantBlock::default());
    for index in 0..row_bytes / format.block_bytes() {
        for (block, raw) in blocks.iter_mut().zip(raw.chunks_exact(row_bytes)) {
            block.decode_constant(format, &raw[index * format.block_bytes()..]);
        }
        quant.write_blocks(out, index, &blocks);
    }
}

/// Packs floats of `WIDTH` bytes unchanged: column after column, sixteen rows each. A few columns at a time stay in the first
/// cache while the rows are written.
fn pack_floats<const WIDTH: usize>(raw: &[u8], row_bytes: usize, out: &mut [u8]) {
    for first in (0..row_bytes).step_by(FLOAT_COLS * WIDTH) {
        let bytes = first..row_bytes.min(first + FLOAT_COLS * WIDTH);
        let out = &mut out[bytes.start * LANES..bytes.end * LANES];
        for (lane, row) in raw.chunks_exact(row_bytes).enumerate() {
            let columns = out.chunks_exact_mut(LANES * WIDTH);
            for (column, weight) in columns.zip(row[bytes.clone()].chunks_exact(WIDTH)) {
                column[lane * WIDTH..][..WIDTH].copy_from_slice(weight);
            }
        }
    }
}
