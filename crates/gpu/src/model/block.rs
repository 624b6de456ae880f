//! Rows that see each other: all are one batch, of one unit, so a block has no more rows than a batch.

use super::Model;
use model::{AdvanceBlock, Batch, ForwardError};

impl AdvanceBlock for Model {
    fn begin_block(&mut self, batch: &Batch) -> Result<usize, ForwardError> {
        self.block = None;
        let width = self.config.dim * (1 + self.config.deepstack);
        let span = batch.check_block(&self.dims, width)?;
        if span.tokens.len() > self.dims.rows_max {
            return Err(ForwardError::BadBatch("a block has more than rows_max rows"));
        }
        self.check(batch, 0)?;
        self.block = Some(batch.clone());
        Ok(1)
    }

    fn advance_block(&mut self) -> Result<bool, ForwardError> {
        if self.flights.are_in_flight() {
            return Err(ForwardError::BadBatch("a batch is in flight"));
        }
        let nothing = ForwardError::BadBatch("no block is under way");
        let batch = self.block.take().ok_or(nothing)?;
        self.step.read_block(&batch);
        let ran = self.on_device(|loaded| {
            loaded.write_vectors(batch.vectors());
            loaded.run(self.step.record(), &mut [])
        });
        match ran {
            Ok(()) => Ok(true),
            Err(error) => {
                self.block = Some(batch);
                Err(error)
            }
        }
    }
}
