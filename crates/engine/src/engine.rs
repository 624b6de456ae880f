//! The step. (Stub.)

use crate::{ConfigError, EngineConfig, Handle};
use model::Forward;
use std::time::Instant;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Rows the model was given.
    pub rows: usize,
    /// Tokens appended to logs.
    pub tokens: usize,
    /// Choices that ended.
    pub ended: usize,
    /// What to do next.
    pub next: Next,
}

/// What the loop does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is work: step again at once.
    Step,
    /// There are requests, but each waits for its reader: step again after
    /// [`crate::PARKED_POLL`] or when woken.
    Poll,
    /// There is nothing: sleep until woken.
    Sleep,
    /// The inbox is closed and everything has ended: leave.
    Leave,
}

/// The one who runs the model. Not shared: whoever owns it steps it.
pub struct Engine {
    _model: Box<dyn Forward>,
}

impl Engine {
    /// An engine with nothing to do. `epoch` is what times in [`crate::Progress`] count from.
    ///
    /// # Errors
    /// A bound of `config`, or of the model's [`model::Dims`], is too small.
    pub fn new(
        _model: Box<dyn Forward>,
        _config: EngineConfig,
        _epoch: Instant,
    ) -> Result<Self, ConfigError> {
        todo!()
    }

    /// A way in, for other threads.
    pub fn handle(&self) -> Handle {
        todo!()
    }

    /// One turn of the loop. `now` never goes back.
    pub fn step(&mut self, _now: Instant) -> StepReport {
        todo!()
    }
}
