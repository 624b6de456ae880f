//! States of sequences of a model with recurrent layers: how many, and their memory.

use crate::failure::Failure;
use engine::EngineConfig;
use model::{Config, STATES_MAX};

/// Divisor for the share of the KV memory that states have at most.
const STATES_PART: usize = 2;

/// States of sequences; none in a model without recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateBudget {
    /// Number of states.
    pub(super) count: usize,
    /// Bytes of a state.
    each: usize,
}

impl StateBudget {
    /// The states that so many sequences need.
    pub(super) fn wanted(config: &Config, sequences: usize) -> Self {
        match config.state_bytes() {
            Some(each) => Self {
                count: EngineConfig::states_for(sequences).min(STATES_MAX),
                each,
            },
            None => Self { count: 0, each: 0 },
        }
    }

    /// Bytes of all states.
    pub(super) fn bytes(&self) -> usize {
        self.count.saturating_mul(self.each)
    }

    /// As many states as a half of `kv_bytes` holds.
    ///
    /// # Errors
    /// That half has no room for the states of a single sequence.
    pub(super) fn within(self, kv_bytes: usize) -> Result<Self, Failure> {
        let part = kv_bytes / STATES_PART;
        let count = match part.checked_div(self.each) {
            Some(affordable) => self.count.min(affordable),
            None => return Ok(self),
        };
        let sequences = EngineConfig::sequences_for(count);
        if sequences == 0 {
            return Err(Failure::user(format!(
                "model.kv_mib = {}: half of it holds no {} states of {} bytes, which a sequence needs",
                kv_bytes >> 20,
                EngineConfig::states_for(1),
                self.each
            )));
        }
        if count < self.count {
            tracing::info!(
                "at most {sequences} sequences at a time: half of model.kv_mib holds {count} states of {} bytes",
                self.each
            );
        }
        Ok(Self { count, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_take_half_of_the_memory_at_most() {
        let wanted = StateBudget {
            count: 683,
            each: 1 << 20,
        };
        let count = |mib: usize| wanted.within(mib << 20).map(|budget| budget.count).ok();
        assert_eq!(count(4096), Some(683));
        assert_eq!(count(1024), Some(512));
        assert_eq!(count(4), Some(2));
        assert_eq!(count(3), None);
        let why = wanted.within(2 << 20).unwrap_err().to_string();
        assert!(
            why.contains("model.kv_mib = 2: half of it holds no"),
            "{why}"
        );
        let none = StateBudget { count: 0, each: 0 };
        assert_eq!(none.within(0).ok(), Some(none));
    }
}
