//! Rows that see each other: all are one batch, of one unit. The workspace has room for the largest block.

use super::Model;
use model::{AdvanceBlock, Batch, ForwardError};

impl AdvanceBlock for Model {
    fn begin_block(&mut self, batch: &Batch) -> Result<usize, ForwardError> {
        self.block = None;
        self.check_additions(batch)?;
        let span = batch.check_block(&self.dims, self.vector_width())?;
        if span.tokens.len() > self.program.rows_max as usize {
            return Err(ForwardError::BadBatch(
                "a block has more rows than the device has room for",
            ));
        }
        self.block = Some(batch.clone());
        Ok(1)
    }

    fn next_cost(&self, _: usize) -> u64 {
        let rows = self.block.as_ref().map_or(1, |batch| batch.tokens().len());
        rows as u64
    }

    fn advance_block(&mut self, _: usize) -> Result<usize, ForwardError> {
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
            Ok(()) => Ok(0),
            Err(error) => {
                self.block = Some(batch);
                Err(error)
            }
        }
    }
}
