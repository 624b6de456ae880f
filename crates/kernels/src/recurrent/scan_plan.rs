//! Which states the spans of a batch read and write.

use std::ops::Range;

/// Rows of one sequence that follow each other.
#[derive(Clone, Debug)]
pub(super) struct ScanSpan {
    /// Rows in the batch.
    pub(super) rows: Range<usize>,
    /// The state before the first row; `None`: nothing precedes.
    pub(super) before: Option<u32>,
    /// Range of the writes in [`ScanPlan::writes`].
    pub(super) writes: Range<usize>,
}

/// A state that is written, after all rows before `row` of the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanWrite {
    pub(super) row: usize,
    pub(super) state: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    None,
    Read,
    Written,
}

/// The spans of a batch with their states. That no state is written twice, or read and written, is checked here, so that
/// workers may hold different states at one time.
pub struct ScanPlan {
    pub(super) spans: Vec<ScanSpan>,
    pub(super) writes: Vec<ScanWrite>,
    /// Of each row: the span.
    pub(super) span_of_row: Vec<u32>,
    /// Of each state.
    uses: Vec<Use>,
}

impl ScanPlan {
    /// For batches of at most `rows_max` rows of a model with `states` states.
    pub fn new(states: usize, rows_max: usize) -> Self {
        Self {
            spans: Vec::with_capacity(rows_max),
            writes: Vec::with_capacity(rows_max),
            span_of_row: Vec::with_capacity(rows_max),
            uses: vec![Use::None; states],
        }
    }

    /// Removes all spans.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.writes.clear();
        self.span_of_row.clear();
        self.uses.fill(Use::None);
    }

    /// Adds a span of `rows` rows. `writes` are states with the number of rows before each, ascending; the last follows
    /// all rows.
    ///
    /// # Errors
    /// A state does not exist, is written twice, or read and written; or the writes are not in order.
    pub fn push(
        &mut self,
        rows: usize,
        before: Option<u32>,
        writes: impl Iterator<Item = (usize, u32)>,
    ) -> Result<(), &'static str> {
        if let Some(state) = before {
            self.mark(state, Use::Read)?;
        }
        let start = self.span_of_row.len();
        let (first, mut last) = (self.writes.len(), 0);
        for (count, state) in writes {
            if count <= last || count > rows {
                return Err("states are not written in the order of the tokens");
            }
            self.mark(state, Use::Written)?;
            let row = start + count;
            self.writes.push(ScanWrite { row, state });
            last = count;
        }
        if last != rows {
            return Err("no state is written after the last token");
        }
        let span = self.spans.len() as u32;
        self.span_of_row.resize(start + rows, span);
        self.spans.push(ScanSpan {
            rows: start..start + rows,
            before,
            writes: first..self.writes.len(),
        });
        Ok(())
    }

    fn mark(&mut self, state: u32, wanted: Use) -> Result<(), &'static str> {
        let found = self.uses.get_mut(state as usize);
        let found = found.ok_or("a state does not exist")?;
        match (*found, wanted) {
            (Use::None, _) | (Use::Read, Use::Read) => {
                *found = wanted;
                Ok(())
            }
            (Use::Written, Use::Written) => Err("a state is written twice"),
            _ => Err("a state is read and written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_written_once_and_not_read() {
        type Span = (usize, Option<u32>, &'static [(usize, u32)]);
        let cases: [(&[Span], Option<&str>); 8] = [
            (&[(3, None, &[(3, 0)]), (1, Some(1), &[(1, 2)])], None),
            (
                &[
                    (3, Some(4), &[(1, 0), (2, 1), (3, 2)]),
                    (1, Some(4), &[(1, 3)]),
                ],
                None,
            ),
            (
                &[(3, None, &[(3, 0)]), (1, None, &[(1, 0)])],
                Some("a state is written twice"),
            ),
            (
                &[(3, Some(1), &[(3, 1)])],
                Some("a state is read and written"),
            ),
            (
                &[(3, None, &[(3, 1)]), (1, Some(1), &[(1, 2)])],
                Some("a state is read and written"),
            ),
            (&[(3, None, &[(3, 5)])], Some("a state does not exist")),
            (
                &[(3, None, &[(2, 1)])],
                Some("no state is written after the last token"),
            ),
            (
                &[(3, None, &[(3, 1), (3, 2)])],
                Some("states are not written in the order of the tokens"),
            ),
        ];
        for (spans, wanted) in cases {
            let mut plan = ScanPlan::new(5, 8);
            let found = spans.iter().try_for_each(|(rows, before, writes)| {
                plan.push(*rows, *before, writes.iter().copied())
            });
            assert_eq!(found.err(), wanted, "{spans:?}");
            plan.clear();
            assert_eq!(plan.push(1, Some(1), [(1, 0)].into_iter()), Ok(()));
            assert_eq!(plan.span_of_row, [0]);
        }
    }
}
