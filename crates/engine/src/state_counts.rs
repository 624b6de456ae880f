//! How many states sequences need, in a model with recurrent layers.

/// States that a sequence needs: the one before a pass, and the one after.
pub(crate) const STATES_EACH: usize = 2;

/// One state in `CHECKPOINTS_PART` is left to checkpoints.
const CHECKPOINTS_PART: usize = 4;

/// The least number of states of a model with recurrent layers.
pub(crate) const STATES_MIN: usize = STATES_EACH;

/// Sequences that a model with `states` states may have in the engine, parked and preempted ones included.
pub(crate) fn sequences_of(states: usize) -> usize {
    (states - states / CHECKPOINTS_PART) / STATES_EACH
}

/// The states with which a model may have so many sequences in the engine.
pub(crate) fn states_of(sequences: usize) -> usize {
    let each = STATES_EACH * CHECKPOINTS_PART;
    sequences
        .saturating_mul(each)
        .div_ceil(CHECKPOINTS_PART - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_have_the_states_that_they_need() {
        for sequences in 1..300 {
            let states = states_of(sequences);
            assert!(sequences_of(states) >= sequences);
            assert!(
                sequences_of(states - 2) < sequences,
                "{sequences}: not too many"
            );
        }
        assert_eq!((states_of(0), states_of(1), states_of(256)), (0, 3, 683));
        assert_eq!(sequences_of(STATES_MIN), 1);
    }
}
