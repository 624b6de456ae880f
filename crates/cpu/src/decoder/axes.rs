//! Angles of rows: by one position, or by three (M-RoPE), of which each pair of a head follows one.

use super::{Decoder, Rope};
use weights::Config;
use weights::config::limits;

impl Decoder {
    /// Computes sine and cosine of every row's position, for both ropes.
    pub(super) fn angles(&mut self, config: &Config) {
        let (queries, axes) = (&self.rows.queries, &self.rows.axes);
        let configs = [&config.rope, &config.rope_local];
        let ropes = self.ropes.iter().zip(configs);
        for ((rope, config), angles) in ropes.zip(&mut self.scratch.angles) {
            let cols = angles.cols();
            let angles = angles.head_mut(queries.len());
            self.pool
                .rows(angles, cols, |row, table| match axes.get(row) {
                    None => rope.table(queries[row].position, table),
                    Some(axes) => table_of_axes(rope, &config.axes, *axes, table),
                });
        }
    }
}

/// Writes the cosines and sines of a row at three positions; `axis_of[i]` is the one that turns pair `i`.
fn table_of_axes(rope: &Rope, axis_of: &[u8], axes: [u32; 3], table: &mut [f32]) {
    rope.table(axes[0] as usize, table);
    let mut other = [0.0; limits::HEAD_DIM];
    let other = &mut other[..table.len()];
    for axis in 1..3 {
        if axes[axis] == axes[0] {
            continue;
        }
        rope.table(axes[axis] as usize, other);
        let pairs = table.chunks_exact_mut(2).zip(other.chunks_exact(2));
        for ((turn, other), found) in pairs.zip(axis_of) {
            if usize::from(*found) == axis {
                turn.copy_from_slice(other);
            }
        }
    }
}
