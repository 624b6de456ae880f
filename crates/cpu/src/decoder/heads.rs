//! Query and key heads between projection and attention: norm and rope.

use super::scratch::Buffer;
use crate::norm;
use kernels::{Isa, Pool, Rope};
use weights::config::Config;
use weights::config::traits::QkNorm;
use weights::parameters::Norm;

/// Norm and rope of a layer's query or key heads.
pub(super) struct Heads<'a> {
    isa: Isa,
    norm: Option<&'a Norm>,
    eps: f32,
    head_dim: usize,
    /// Whether the norm is applied to all heads together.
    norm_spans_heads: bool,
    /// Whether the norm follows the rope.
    norm_is_last: bool,
    /// Index of the rope: 0 global, 1 local; `None`: the heads do not turn.
    rope: Option<usize>,
}

impl<'a> Heads<'a> {
    pub(super) fn new(config: &Config, isa: Isa, layer: usize, norm: Option<&'a Norm>) -> Self {
        let rope = usize::from(config.windows[layer].is_some());
        Self {
            isa,
            norm,
            eps: config.norm_eps,
            head_dim: config.shapes[layer].head_dim,
            norm_spans_heads: config.traits.qk_norm == QkNorm::Row,
            norm_is_last: config.traits.qk_norm == QkNorm::TurnedHeads,
            rope: config.roped[layer].then_some(rope),
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
        pool.rows(x, cols, |row, heads| {
            if !self.norm_is_last {
                self.normalize(heads);
            }
            if let Some(rope) = self.rope {
                ropes[rope].apply(angles[rope].row(row), heads, self.head_dim);
            }
            if self.norm_is_last {
                self.normalize(heads);
            }
        });
    }

    fn normalize(&self, heads: &mut [f32]) {
        let Some(norm) = self.norm else { return };
        let part = if self.norm_spans_heads {
            heads.len()
        } else {
            self.head_dim
        };
        norm::apply_to_parts(norm, self.isa, self.eps, heads, part);
    }
}
