//! The control updates of a durable stream that the engine has accepted: those in effect, and those that wait.

use crate::durability::ControlState;
use engine::RequestUpdate;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a control state's record that are left for the history.
const HISTORY_BYTES_MAX: usize = 64 << 10;

/// Control updates of one stream. The lock keeps the order of updates equal to the engine's.
#[derive(Debug, Default)]
pub(crate) struct Steering(Mutex<SteeringState>);

/// Control updates in effect, and those that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct SteeringState {
    /// Without history and count.
    state: ControlState,
    /// Updates that earlier processes have applied.
    applied_before: u64,
}

impl Steering {
    pub(crate) fn lock(&self) -> MutexGuard<'_, SteeringState> {
        // No code that may panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the control updates of an earlier process. Those that wait are given to the engine again.
    pub(crate) fn restore(&self, control: &ControlState) {
        *self.lock() = SteeringState {
            applied_before: control.applied,
            state: ControlState {
                history: Vec::new(),
                ..control.clone()
            },
        };
    }
}

impl SteeringState {
    /// The state after one more update; this process has applied `applied`. `None`: the updates that wait are longer than a
    /// record.
    pub(crate) fn accept(&self, update: &RequestUpdate, applied: u64) -> Option<Self> {
        let mut next = self.clone();
        next.state
            .mark_applied(self.applied_before.saturating_add(applied));
        next.state.pending.push(update.clone());
        let bytes = next.state.encode().ok()?.len();
        (bytes + HISTORY_BYTES_MAX <= journal::SAMPLING_BYTES_MAX).then_some(next)
    }

    /// The state, without history and count.
    pub(crate) fn control_state(&self) -> &ControlState {
        &self.state
    }
}
