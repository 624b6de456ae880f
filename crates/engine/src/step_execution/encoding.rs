//! Units of an encoding, before the batch of the step.
//!
//! An encoding that reports an error, panics or gives rows that are not finite ends the request that it was for. Another
//! request with an equal input then has it encoded anew. A model that runs ahead computes nothing else meanwhile, so what is in
//! flight lands first.

use super::StepExecution;
use crate::scheduler::UnitOutcome;
use model::{DeviceFault, EncodeError, EncoderInput, Forward};
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

impl StepExecution<'_> {
    /// Runs the planned units.
    ///
    /// # Errors
    /// The model's device failed.
    pub(super) fn encode(&mut self) -> Result<(), DeviceFault> {
        if !self.scheduler.has_encoding_units() {
            return Ok(());
        }
        if self.model.ahead().is_some() {
            self.land()?;
        }
        while let Some((begins, input)) = self.scheduler.begin_planned() {
            if !begins {
                let cost = self
                    .model
                    .encoder()
                    .map_or(1, |encoder| encoder.next_cost());
                if !self.scheduler.take_encoding_unit(cost) {
                    break;
                }
            }
            let outcome = run(&mut *self.model, begins.then_some(&input))?;
            if !self.scheduler.apply_unit(outcome) {
                break;
            }
        }
        Ok(())
    }
}

/// Begins an input, or computes the next unit of the one that was begun.
fn run<'a>(
    model: &'a mut dyn Forward,
    begun: Option<&EncoderInput>,
) -> Result<UnitOutcome<'a>, DeviceFault> {
    // Moves `model` in, so that the rows may outlive the call.
    let run = move || {
        let model = model;
        let missing = EncodeError::BadInput("the model has no encoder");
        let encoder = model.encoder().ok_or(missing)?;
        if let Some(input) = begun {
            return encoder.begin(input).map(|_| UnitOutcome::Begun);
        }
        let rows = encoder.advance()?;
        Ok(rows.map_or(UnitOutcome::Goes, UnitOutcome::Rows))
    };
    Ok(match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(EncodeError::Device(fault))) => return Err(fault),
        Ok(Err(EncodeError::NotFinite)) => UnitOutcome::Failed(FailCode::NotFinite),
        Ok(Err(_)) => UnitOutcome::Failed(FailCode::Inference),
        Err(_) => UnitOutcome::Failed(FailCode::Panic),
    })
}
