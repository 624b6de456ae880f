//! Control updates that took effect.

use super::ControlState;
use engine::RequestUpdate;

impl ControlState {
    /// The first `applied` updates since the opening are in effect: their parameters hold, and their tokens are in the
    /// logs.
    pub(crate) fn mark_applied(&mut self, applied: u64) {
        while self.applied < applied && !self.pending.is_empty() {
            let update = self.pending.remove(0);
            self.applied += 1;
            override_parameters(&mut self.in_effect, &update);
        }
    }
}

/// Replaces the parameters that the update sets.
fn override_parameters(in_effect: &mut RequestUpdate, update: &RequestUpdate) {
    let RequestUpdate {
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        inject: _,
    } = update;
    let set = |value: &mut Option<f32>, new: &Option<f32>| *value = new.or(*value);
    set(&mut in_effect.temperature, temperature);
    set(&mut in_effect.top_p, top_p);
    set(&mut in_effect.min_p, min_p);
    set(&mut in_effect.repetition_penalty, repetition_penalty);
    set(&mut in_effect.presence_penalty, presence_penalty);
    set(&mut in_effect.frequency_penalty, frequency_penalty);
    in_effect.top_k = top_k.or(in_effect.top_k);
}
