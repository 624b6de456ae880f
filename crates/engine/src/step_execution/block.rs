//! Units of the pass over a block, before the batch of the step.
//!
//! A call that fails is tried once more, as a lone culprit of a batch is (a fault may pass); then its request ends with `Failed`.
//! A model that runs ahead computes nothing else meanwhile, so what is in flight lands first.

use super::StepExecution;
use crate::scheduler::BlockOutcome;
use model::{AdvanceBlock, Batch, DeviceFault, Forward, ForwardError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

impl StepExecution<'_> {
    /// Runs the planned units.
    ///
    /// # Errors
    /// The model's device failed.
    pub(super) fn advance_block(&mut self) -> Result<(), DeviceFault> {
        if !self.scheduler.has_block_units() {
            return Ok(());
        }
        if self.model.ahead().is_some() {
            self.land()?;
        }
        while let Some(begins) = self.scheduler.put_block(&mut self.buffers.batch) {
            let outcome = if begins {
                begin(&mut *self.model, &self.buffers.batch)?
            } else {
                let Some(blocks) = self.model.blocks() else {
                    break;
                };
                let units = self
                    .scheduler
                    .take_block_units(|units| blocks.next_cost(units));
                if units == 0 {
                    break;
                }
                advance(&mut *self.model, units)?
            };
            if !self.scheduler.apply_block(outcome) {
                break;
            }
        }
        Ok(())
    }
}

fn begin(model: &mut dyn Forward, batch: &Batch) -> Result<BlockOutcome, DeviceFault> {
    let begin = |blocks: &mut dyn AdvanceBlock| blocks.begin_block(batch);
    call(model, begin, BlockOutcome::Begun)
}

fn advance(model: &mut dyn Forward, units: usize) -> Result<BlockOutcome, DeviceFault> {
    let advance = |blocks: &mut dyn AdvanceBlock| blocks.advance_block(units);
    call(model, advance, BlockOutcome::Left)
}

/// Calls the model.
///
/// # Errors
/// The device failed.
fn call<T>(
    model: &mut dyn Forward,
    act: impl FnOnce(&mut dyn AdvanceBlock) -> Result<T, ForwardError>,
    outcome_of: impl FnOnce(T) -> BlockOutcome,
) -> Result<BlockOutcome, DeviceFault> {
    let missing = ForwardError::BadBatch("the model has no blocks");
    let called = catch_unwind(AssertUnwindSafe(|| match model.blocks() {
        Some(blocks) => act(blocks),
        None => Err(missing),
    }));
    Ok(match called {
        Ok(Ok(given)) => outcome_of(given),
        Ok(Err(ForwardError::Device(fault))) => return Err(fault),
        Ok(Err(ForwardError::NotFinite { .. })) => BlockOutcome::Failed(FailCode::NotFinite),
        Ok(Err(_)) => BlockOutcome::Failed(FailCode::Inference),
        Err(_) => BlockOutcome::Failed(FailCode::Panic),
    })
}
