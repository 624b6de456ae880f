//! Which recovered stream is submitted next.

use super::attempt::Attempt;
use generate::priority::Priority;

/// The properties of a stream that decide when the stream is submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Whether a client waits for the stream's next token.
    pub(crate) has_reader: bool,
    pub(crate) class: Priority,
    /// Tokens to be computed before the next token: of the prompts and of the unfinished answers.
    pub(crate) tokens_to_compute: usize,
    pub(crate) attempt: Attempt,
    /// Place in the order of opening.
    pub(crate) place: usize,
}

/// Index of the next stream: those that run alone come last; then readers count, the class, and the work.
pub(crate) fn next_candidate(candidates: impl IntoIterator<Item = Candidate>) -> Option<usize> {
    let ranked = candidates.into_iter().enumerate();
    let first = ranked.min_by_key(|(_, candidate)| {
        (
            matches!(candidate.attempt, Attempt::Alone { .. }),
            !candidate.has_reader,
            candidate.class.index(),
            candidate.tokens_to_compute,
            candidate.place,
        )
    });
    first.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_precede_classes_and_classes_precede_work() {
        let stream = |has_reader, class, tokens_to_compute, place| Candidate {
            has_reader,
            class,
            tokens_to_compute,
            attempt: Attempt::Normal { number: 1 },
            place,
        };
        let mut left = vec![
            stream(false, Priority::Normal, 10, 0),
            stream(false, Priority::Background, 1, 1),
            Candidate {
                attempt: Attempt::Alone { number: 3 },
                ..stream(true, Priority::Critical, 1, 2)
            },
            stream(false, Priority::Critical, 900, 3),
            stream(true, Priority::Background, 500, 4),
            stream(true, Priority::Normal, 700, 5),
            stream(false, Priority::Normal, 9, 6),
            stream(false, Priority::Normal, 10, 7),
        ];
        let mut order = Vec::new();
        while let Some(next) = next_candidate(left.iter().copied()) {
            order.push(left.remove(next).place);
        }
        assert_eq!(order, [5, 4, 3, 6, 0, 7, 1, 2]);
    }
}
