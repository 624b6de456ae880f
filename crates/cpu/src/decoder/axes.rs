//! Angles of rows: by one position, or by three (M-RoPE), of which each pair of a head follows one.

use super::Decoder;
use weights::Config;
use weights::config::table_of_axes;

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
