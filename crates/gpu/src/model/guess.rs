//! Guesses of the MTP head.

use super::Model;
use crate::operation::RowSet;
use crate::webgpu::loaded::Output;
use kernels::logits::all_finite;
use model::{Batch, ForwardError, Predict, Span, Want};

impl Predict for Model {
    fn predict(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        if !self.config.mtp {
            return Err(ForwardError::BadBatch("the model has no MTP head"));
        }
        let is_single = |span: &Span| span.tokens.len() == 1 && span.want == Want::Last;
        if !batch.ranges().iter().all(is_single) {
            return Err(ForwardError::BadBatch("a guess follows one token"));
        }
        if self.flights.awaits_draws() {
            return Err(ForwardError::BadBatch("the draws of a batch are missing"));
        }
        self.check(batch, 0)?;
        if batch.is_empty() {
            return Ok(&mut []);
        }
        self.step.read_guesses(batch);
        let mut logits = std::mem::take(&mut self.logits);
        logits.resize(self.step.rows(RowSet::Logits) * self.dims.vocab, 0.0);
        let ran = self.on_device(|loaded| {
            loaded.write_vectors(batch.vectors());
            let rows = &mut logits[..];
            let buffer = self.outputs.logits;
            loaded.guess(self.step.record(), &mut [Output { buffer, rows }])
        });
        self.logits = logits;
        ran?;
        let mut rows = self.logits.chunks_exact(self.dims.vocab);
        match rows.position(|row| !all_finite(self.isa, row)) {
            None => Ok(&mut self.logits),
            Some(row) => Err(ForwardError::NotFinite { row }),
        }
    }
}
