//! A table of which single rows are read, kept as in the file.

use super::LoadError;
use super::tensors::Tensors;
use kernels::{Format, add_scaled, dequantize};

/// Weights that are decoded at a time, a multiple of every format's block.
const CHUNK: usize = 256;

/// A table whose rows are decoded one by one, and which is never multiplied: it is not packed for the kernels.
pub(crate) struct RowTable {
    format: Format,
    cols: usize,
    bytes: Vec<u8>,
}

impl RowTable {
    /// Copies the table from the file.
    pub(super) fn load(
        tensors: &mut Tensors<'_>,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Self, LoadError> {
        let (format, bytes) = tensors.raw(name, rows, cols)?;
        Ok(Self {
            format,
            cols,
            bytes,
        })
    }

    /// Adds a row, times `factor`, to `out`, which is as long as a row.
    pub(crate) fn add_row(&self, isa: kernels::Isa, row: usize, factor: f32, out: &mut [f32]) {
        let mut decoded = [0.0; CHUNK];
        let bytes_of = |weights| weights / self.format.block_weights() * self.format.block_bytes();
        let row = &self.bytes[row * bytes_of(self.cols)..][..bytes_of(self.cols)];
        let parts = row.chunks(bytes_of(CHUNK)).zip(out.chunks_mut(CHUNK));
        for (bytes, out) in parts {
            let decoded = &mut decoded[..out.len()];
            dequantize(self.format, bytes, decoded);
            add_scaled(isa, out, decoded, factor);
        }
    }

    /// Resident bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
