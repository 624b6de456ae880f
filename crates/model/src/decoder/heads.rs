//! Query and key heads between projection and attention: norm, then rope.

use super::Config;
use super::scratch::Buffer;
use crate::config::limits;
use kernels::{Isa, Pool, Rope, rms_norm};

/// Norm and rope of a layer's query or key heads.
pub(super) struct Heads<'a> {
    isa: Isa,
    norm: Option<&'a [f32]>,
    eps: f32,
    head_dim: usize,
    /// Index of the rope: 0 global, 1 local.
    rope: usize,
}

impl<'a> Heads<'a> {
    pub(super) fn new(config: &Config, isa: Isa, layer: usize, norm: Option<&'a [f32]>) -> Self {
        Self {
            isa,
            norm,
            eps: config.norm_eps,
            head_dim: config.head_dim,
            rope: usize::from(config.windows[layer].is_some()),
        }
    }

    /// Normalizes and rotates `x`, shape `(rows, cols)`; row `i` by the angles of row `i`.
    pub(super) fn turn(
        &self,
        pool: &mut Pool,
        ropes: &[Rope; 2],
        angles: &[Buffer; 2],
        x: &mut [f32],
        cols: usize,
    ) {
        let (rope, angles) = (&ropes[self.rope], &angles[self.rope]);
        pool.rows(x, cols, |row, heads| {
            if let Some(norm) = self.norm {
                self.norm_each(norm, heads);
            }
            rope.apply(angles.row(row), heads, self.head_dim);
        });
    }

    fn norm_each(&self, norm: &[f32], heads: &mut [f32]) {
        let mut copy = [0.0; limits::HEAD_DIM];
        let copy = &mut copy[..self.head_dim];
        for head in heads.chunks_exact_mut(self.head_dim) {
            copy.copy_from_slice(head);
            rms_norm(self.isa, copy, norm, self.eps, head);
        }
    }
}
