//! States of sequences of a model with recurrent layers: how many, and their memory.

use crate::failure::Failure;
use cpu::STATES_MAX;
use engine::EngineConfig;
use weights::Config;

/// Divisor for the share of the KV memory that states have at most.
const STATES_PART: usize = 2;

/// Divisor for the share that pages have at least in a model without keys and values, where a page is a table.
const TABLES_PART: usize = 16;

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

    /// As many states as a half of `kv_bytes` holds, or nearly all of it in a model without keys and values.
    ///
    /// # Errors
    /// That part has no room for the states of a single sequence.
    pub(super) fn within(self, kv_bytes: usize, has_keys: bool) -> Result<Self, Failure> {
        let (part, name) = if has_keys {
            (kv_bytes / STATES_PART, "half")
        } else {
            (kv_bytes - kv_bytes / TABLES_PART, "fifteen sixteenths")
        };
        let count = match part.checked_div(self.each) {
            Some(affordable) => self.count.min(affordable),
            None => return Ok(self),
        };
        let sequences = EngineConfig::sequences_for(count);
        if sequences == 0 {
            return Err(Failure::user(format!(
                "model.kv_mib = {}: {name} of it has no room for {} states of {} bytes, which a sequence needs",
                kv_bytes >> 20,
                EngineConfig::states_for(1),
                self.each
            )));
        }
        if count < self.count {
            tracing::info!(
                "at most {sequences} sequences at a time: {name} of model.kv_mib has room for {count} states of {} bytes",
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
        let count = |mib: usize, has_keys| {
            let budget = wanted.within(mib << 20, has_keys);
            budget.map(|budget| budget.count).ok()
        };
        assert_eq!(count(4096, true), Some(683));
        assert_eq!(count(1024, true), Some(512));
        assert_eq!(count(4, true), Some(2));
        assert_eq!(count(3, true), None);
        assert_eq!([count(512, false), count(3, false)], [Some(480), Some(2)]);
        for (has_keys, part) in [(true, "half"), (false, "fifteen sixteenths")] {
            let why = wanted.within(2 << 20, has_keys).unwrap_err().to_string();
            let begin = format!("model.kv_mib = 2: {part} of it has no room for");
            assert!(why.contains(&begin), "{why}");
        }
        let none = StateBudget { count: 0, each: 0 };
        assert_eq!(none.within(0, true).ok(), Some(none));
    }
}
