//! How weights lie on the device.

pub(crate) mod quants;

use crate::operation::MatrixShape;
use quants::RowLayout;

/// Bytes of a matrix on the device.
pub fn matrix_bytes(shape: &MatrixShape) -> u64 {
    let layout = RowLayout::of(shape.format, shape.cols as usize);
    u64::from(shape.rows) * layout.row_words() as u64 * size_of::<u32>() as u64
}
