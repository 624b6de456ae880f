//! From the last layer's rows to logits and hidden states.

use super::{Config, Decoder, ForwardError, Weights, add_assign, matmul, scale};
use kernels::logits::all_finite;
use kernels::{Matrix, softcap};
use std::sync::atomic::{AtomicUsize, Ordering};

impl Decoder {
    /// Stores the requested hidden states, and projects the remaining rows, which all need logits, onto the
    /// vocabulary by `projection`.
    pub(super) fn logits(
        &mut self,
        config: &Config,
        weights: &Weights,
        projection: &Matrix,
    ) -> Result<&mut [f32], ForwardError> {
        self.keep_hidden(weights);
        let rows = self.rows.queries.len();
        if rows == 0 {
            return Ok(&mut []);
        }
        self.load_normed();
        let (isa, vocab) = (self.isa, self.scratch.logits.cols());
        let logits = self.scratch.logits.head_mut(rows);
        matmul(
            &mut self.pool,
            projection,
            &self.scratch.activations,
            logits,
        );
        let broken = AtomicUsize::new(usize::MAX);
        self.pool.rows(logits, vocab, |row, logits| {
            if let Some(bias) = &weights.output_bias {
                add_assign(isa, logits, bias);
            }
            // Checked before scale and cap, which could make infinities finite.
            if !all_finite(isa, logits) {
                broken.fetch_min(row, Ordering::Relaxed);
            }
            if config.scales.logits != 1.0 {
                scale(isa, logits, config.scales.logits);
            }
            if let Some(cap) = config.logit_cap {
                softcap(isa, logits, cap);
            }
        });
        match broken.into_inner() {
            usize::MAX => Ok(logits),
            row => Err(ForwardError::NotFinite { row }),
        }
    }
}

impl Decoder {
    /// The stored hidden states, or what their head gives: `(rows, hidden_dim)`.
    pub(crate) fn hidden(&self) -> &[f32] {
        let rows = self.rows.hidden.len();
        match &self.state_head {
            Some(head) => head.outputs(rows),
            None => self.scratch.hidden.head(rows),
        }
    }

    fn keep_hidden(&mut self, weights: &Weights) {
        let (rows, scratch) = (&mut self.rows, &mut self.scratch);
        if rows.hidden.is_empty() {
            return;
        }
        scratch.hidden.copy_rows(&scratch.normed, &rows.hidden);
        scratch.normed.gather(&rows.logits);
        if let (Some(head), Some(projections)) = (&mut self.state_head, &weights.state_head) {
            let states = scratch.hidden.head(rows.hidden.len());
            head.project(self.isa, &mut self.pool, projections, states);
        }
        rows.keep_logits();
    }
}
