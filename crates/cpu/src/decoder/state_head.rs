//! The head on hidden states: projections of a few rows at a time, so that the workspace stays small.

use super::scratch::Buffer;
use crate::norm::project;
use kernels::{Activations, Isa, Pool};
use model::Dims;
use weights::config::{Config, StateHead};
use weights::parameters::{HeadProjections, SCORED_ANSWERS, Weights};

/// Rows that a head on hidden states projects at a time.
pub const STATE_HEAD_ROWS: usize = 64;

/// Workspace of a head, and what the head gave.
pub(super) struct HeadScratch {
    dim: usize,
    /// Between the projections of some rows (inner); of the answers, the logits.
    inner: Buffer,
    /// Of all rows (outer).
    outputs: Buffer,
    /// The input of a projection of some rows.
    activations: Activations,
    activations_bytes: usize,
}

impl HeadScratch {
    /// The workspace, for a model with a head.
    pub(super) fn new(config: &Config, weights: &Weights, dims: &Dims) -> Option<Self> {
        let head = config.state_head?;
        let rows = dims.rows_max.min(STATE_HEAD_ROWS);
        let (inner, cols_max) = match head {
            StateHead::YesNo => (SCORED_ANSWERS, config.dim),
            StateHead::Dense { inner, .. } => (inner, inner.max(config.dim)),
        };
        let formats = weights.state_head.iter().flat_map(HeadProjections::formats);
        Some(Self {
            dim: config.dim,
            inner: Buffer::new(rows, inner),
            outputs: Buffer::new(dims.rows_max, head.entries()),
            activations: Activations::new(rows, cols_max).for_weights(formats),
            activations_bytes: Activations::bytes(rows, cols_max),
        })
    }

    /// Resident bytes.
    pub(super) fn bytes(&self) -> usize {
        self.inner.bytes() + self.outputs.bytes() + self.activations_bytes
    }

    /// What the head gave for the first `rows` rows.
    pub(super) fn outputs(&self, rows: usize) -> &[f32] {
        self.outputs.head(rows)
    }

    /// Projects hidden states, `(rows, dim)`.
    pub(super) fn project(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        projections: &HeadProjections,
        states: &[f32],
    ) {
        let (inner_cols, cols) = (self.inner.cols(), self.outputs.cols());
        let outputs = self.outputs.head_mut(states.len() / self.dim);
        let (rows_max, x) = (self.inner.rows(), &mut self.activations);
        let chunks = states.chunks(rows_max * self.dim);
        for (states, outputs) in chunks.zip(outputs.chunks_mut(rows_max * cols)) {
            let rows = states.len() / self.dim;
            let inner = self.inner.head_mut(rows);
            x.load(isa, pool, states, rows, self.dim);
            match projections {
                HeadProjections::YesNo(answers) => {
                    project(isa, pool, answers, x, inner);
                    let logits = inner.as_chunks::<{ SCORED_ANSWERS }>().0;
                    for (output, [yes, no]) in outputs.iter_mut().zip(logits) {
                        *output = yes - no;
                    }
                }
                HeadProjections::Dense([into, out]) => {
                    project(isa, pool, into, x, inner);
                    x.load(isa, pool, inner, rows, inner_cols);
                    project(isa, pool, out, x, outputs);
                }
            }
        }
    }
}
