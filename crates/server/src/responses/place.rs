//! Sequence numbers, and the places in a stream that they mean.

use crate::error::ApiError;
use crate::streams::{ChoiceLog, Closing, Cursor, Entry, no_place};

/// `response.created`; `response.in_progress` has the next.
pub(super) const CREATED: u64 = 0;
/// The number of a choice's first event is one more than this and what was told of the others.
const OPENING: u64 = 1;

/// How far the telling of one choice is; positions of all choices add up to the sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(u64);

impl At {
    /// Nothing was told.
    pub(super) const START: Self = Self(0);
    /// `response.output_item.added`.
    pub(super) const ITEM: Self = Self(1);
    /// `response.content_part.added`.
    pub(super) const PART: Self = Self(2);

    /// A delta up to this step.
    pub(super) fn delta(step: u64) -> Self {
        Self(Self::PART.0 + step)
    }

    /// The three events of its end, whose step this is.
    pub(super) fn end(step: u64) -> [Self; 3] {
        [0, 1, 2].map(|i| Self(Self::PART.0 + step + i))
    }

    /// Of a choice that was told up to this step before.
    pub(super) fn resumed(step: u64, log: Option<&ChoiceLog>) -> Self {
        let ended = log.is_some_and(|log| log.tokens.end().is_some() && step >= log.steps());
        match (step, ended) {
            (0, _) => Self::START,
            (step, false) => Self::delta(step),
            (step, true) => Self::end(step)[2],
        }
    }
}

/// The sequence number where choices are so far.
pub(super) fn number(at: &[At]) -> u64 {
    OPENING + at.iter().map(|at| at.0).sum::<u64>()
}

/// The number of the response's last event. To be asked for when all choices have ended.
pub(super) fn last(entry: &Entry) -> u64 {
    let choices = entry.started().into_iter().flat_map(|s| &s.choices);
    let ends = choices.map(|log| At::end(log.steps())[2].0);
    OPENING + ends.sum::<u64>() + 1
}

/// Where a client is that was told everything up to the event of this number, of a response with one
/// choice. `None`: before the first delta. What comes after that place and has no greater number is still
/// to be left out.
///
/// # Errors
/// No such number can have been told.
pub(super) fn cursor(entry: &Entry, number: u64) -> Result<Option<Cursor>, ApiError> {
    let Some(step) = number.checked_sub(OPENING + At::PART.0).filter(|&s| s > 0) else {
        return Ok(None);
    };
    let log = entry.started().and_then(|started| started.choices.first());
    let log = log.ok_or_else(no_place)?;
    // The end first: a log that has ended grows no more.
    let step = match log.tokens.end() {
        // The ending has several events: which of them were told is seen when they are told again.
        Some(_) => step.min(log.steps() - 1),
        None if step > log.steps() => return Err(no_place()),
        None => step,
    };
    Ok(Some(Cursor {
        steps: vec![step],
        closing: Closing::Open,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_with_what_is_told() {
        let [text, part, item] = At::end(7);
        let told = [At::START, At::ITEM, At::PART, At::delta(1), At::delta(5)];
        let told: Vec<At> = told.into_iter().chain([text, part, item]).collect();
        let numbers: Vec<u64> = told.iter().map(|&at| number(&[at])).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 8, 10, 11, 12]);
        assert_eq!(number(&[At::delta(2), At::PART]), 1 + 4 + 2);
    }
}
