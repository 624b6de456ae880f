//! Rows of activations in the forms that matmuls read. (Stub.)

use crate::{Isa, Pool};

/// Up to `rows_max` rows, prepared once and read by every projection that takes the same input:
/// as f32, and as int8 with a scale and a sum per 32 columns.
pub struct Activations {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl Activations {
    /// Room for `(rows_max, cols_max)`; the only allocation.
    pub fn new(_rows_max: usize, _cols_max: usize) -> Self {
        todo!()
    }
    /// Prepares `x`, shape `(rows, cols)`; `cols` a multiple of 32.
    pub fn load(&mut self, _isa: Isa, _pool: &mut Pool, _x: &[f32], _rows: usize, _cols: usize) {
        todo!()
    }
    /// Rows loaded.
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Columns loaded.
    pub fn cols(&self) -> usize {
        self.cols
    }
}
