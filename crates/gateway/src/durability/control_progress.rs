//! Control updates that took effect.

use super::ControlState;

impl ControlState {
    /// The first `applied` updates since the opening are in effect: their parameters hold, and their tokens are in the
    /// logs.
    pub(crate) fn mark_applied(&mut self, applied: u64) {
        while self.applied < applied && !self.pending.is_empty() {
            let update = self.pending.remove(0);
            self.applied += 1;
            self.in_effect.override_with(&update);
        }
    }
}
