//! Rows of a batch that are more than a token at its position: vectors, positions on three axes.

use crate::Batch;
use std::ops::Range;

/// In place of the token of a row that is a vector.
pub const VECTOR: u32 = u32::MAX;

/// Consecutive rows that are vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorRows {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Range of [`Batch::vectors`], row after row.
    pub floats: Range<usize>,
}

/// Kinds of rows of a batch other than tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowAdditions {
    /// Vectors in place of tokens.
    pub vectors: bool,
    /// Positions on three axes.
    pub axes: bool,
}

impl RowAdditions {
    /// Rows are tokens.
    pub const NONE: Self = Self {
        vectors: false,
        axes: false,
    };
}

/// Rows of the batch, from rows counted from the first of a span.
pub(crate) fn in_batch(span: &Range<usize>, rows: &Range<usize>) -> Range<usize> {
    let row = |row: usize| span.start.saturating_add(row);
    row(rows.start)..row(rows.end)
}

pub(crate) fn check(batch: &Batch, width: usize) -> Result<(), &'static str> {
    let mut vectors = 0;
    for span in batch.ranges() {
        let of_span = &batch.vector_rows()[span.vectors.clone()];
        let rows = of_span.iter().map(|vectors| &vectors.rows);
        vectors += check_ascending(&span.tokens, rows, "vectors are outside of their span")?;
        if !span.axes.is_empty() && span.axes.len() != span.tokens.len() {
            return Err("a span has a position on three axes for each row, or none");
        }
    }
    let of_vectors = |vectors: &VectorRows| vectors.floats.len() == vectors.rows.len() * width;
    if !batch.vector_rows().iter().all(of_vectors) {
        return Err("vectors are not as wide as the model's");
    }
    if !batch.vectors().iter().all(|entry| entry.is_finite()) {
        return Err("a vector is not finite");
    }
    let marked = batch.tokens().iter().filter(|&&token| token == VECTOR);
    if marked.count() == vectors {
        Ok(())
    } else {
        Err("a row has neither a token nor a vector")
    }
}

/// Checks that ranges of rows are not empty, ascend, do not overlap, and are within a span. Returns the number of rows.
fn check_ascending<'a>(
    span: &Range<usize>,
    ranges: impl Iterator<Item = &'a Range<usize>>,
    why: &'static str,
) -> Result<usize, &'static str> {
    let (mut free, mut rows) = (span.start, 0);
    for range in ranges {
        if range.start < free || range.is_empty() || range.end > span.end {
            return Err(why);
        }
        free = range.end;
        rows += range.len();
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dims, ForwardError, Want};

    const WIDTH: usize = 2;

    /// Two spans: three tokens, then five rows of which the second and third are vectors.
    fn batch() -> Batch {
        let mut batch = Batch::default();
        batch.push(&[1, 2, 3], 0, &[0], Want::None);
        batch.push(&[4, 5, 6, 7, 8], 3, &[0, 1], Want::Last);
        batch
    }

    #[test]
    fn vectors_take_the_place_of_tokens_and_stay_in_copies() {
        let mut batch = batch();
        batch.set_vectors(1..3, &[0.5; 2 * WIDTH]);
        batch.set_axes(&[[3; 3], [4, 4, 4], [4, 4, 5], [6; 3], [7; 3]]);
        assert_eq!(batch.check_row_inputs(WIDTH), Ok(()));
        assert_eq!(batch.tokens(), [1, 2, 3, 4, VECTOR, VECTOR, 7, 8]);
        assert_eq!(batch.vector(3), None);
        assert_eq!(batch.vector(5), Some(&[0.5; WIDTH][..]));
        assert_eq!(batch.vector(6), None);
        let mut copy = Batch::default();
        copy.copy_with(&batch, |token| token + 10);
        assert_eq!(copy.tokens(), [11, 12, 13, 14, VECTOR, VECTOR, 17, 18]);
        let parts = |batch: &Batch| {
            let ranges = batch.vector_rows().to_vec();
            (ranges, batch.vectors().to_vec(), batch.axes().to_vec())
        };
        assert_eq!(parts(&copy), parts(&batch));
        assert_eq!(copy.ranges(), batch.ranges());
        copy.clear();
        assert!(copy.check_plain().is_ok() && copy.vectors().is_empty());
    }

    #[test]
    fn additions_are_named_to_a_model_without_them() {
        type Add = fn(&mut Batch);
        let rows: [(&str, Add); 2] = [
            ("vectors", |batch| batch.set_vectors(0..1, &[0.0; WIDTH])),
            ("three axes", |batch| batch.set_axes(&[[0; 3]; 5])),
        ];
        assert_eq!(batch().check_plain(), Ok(()));
        for (part, add) in rows {
            let mut batch = batch();
            add(&mut batch);
            assert_eq!(batch.check_row_inputs(WIDTH), Ok(()), "{part}");
            assert!(says(&batch.check_plain(), part), "{part}");
            let taken = RowAdditions {
                vectors: part == "vectors",
                axes: part == "three axes",
            };
            assert_eq!(batch.check_additions(taken), Ok(()), "{part}");
        }
    }

    #[test]
    fn row_inputs_beyond_a_bound_are_refused() {
        type Add = fn(&mut Batch);
        let rows: [(&str, &str, Add); 9] = [
            ("outside", "beyond the span", |batch| {
                batch.set_vectors(4..6, &[0.0; 2 * WIDTH]);
            }),
            ("outside", "no rows", |batch| batch.set_vectors(1..1, &[])),
            ("outside", "of the last row on", |batch| {
                batch.set_vectors(usize::MAX..usize::MAX, &[]);
            }),
            ("outside", "twice", |batch| {
                batch.set_vectors(0..2, &[0.0; 2 * WIDTH]);
                batch.set_vectors(1..2, &[0.0; WIDTH]);
            }),
            ("as wide", "too few", |batch| {
                batch.set_vectors(0..2, &[0.0; WIDTH]);
            }),
            ("finite", "NaN", |batch| {
                batch.set_vectors(0..1, &[0.0, f32::NAN]);
            }),
            ("each row", "too few axes", |batch| {
                batch.set_axes(&[[0; 3]; 4]);
            }),
            ("each row", "too many axes", |batch| {
                batch.set_axes(&[[0; 3]; 6]);
            }),
            ("neither", "a mark alone", |batch| {
                batch.push(&[VECTOR], 8, &[0, 1], Want::None);
            }),
        ];
        for (part, label, add) in rows {
            let mut batch = batch();
            add(&mut batch);
            assert!(says(&batch.check_row_inputs(WIDTH), part), "{label}");
        }
        let mut empty = Batch::default();
        empty.set_vectors(0..1, &[0.0; WIDTH]);
        empty.set_axes(&[[0; 3]]);
        assert_eq!(empty.check_plain(), Ok(()));
    }

    #[test]
    fn block_is_one_span_of_vectors_without_outputs() {
        let dims = Dims {
            vocab: 10,
            context_max: 64,
            page_tokens: 4,
            pages: 3,
            rows_max: 2,
            logit_rows_max: 1,
        };
        let block = |want, vectors: Range<usize>, pages: &[u32]| {
            let mut batch = Batch::default();
            batch.push(&[0; 5], 2, pages, want);
            batch.set_vectors(vectors.clone(), &vec![0.5; vectors.len() * WIDTH]);
            batch
        };
        let sound = block(Want::None, 0..5, &[0, 1]);
        let span = sound
            .check_block(&dims, WIDTH)
            .expect("more rows than rows_max");
        assert_eq!((span.position, span.tokens.clone()), (2, 0..5));
        let mut two = sound.clone();
        two.push(&[1], 0, &[2], Want::None);
        let rows = [
            ("one span", two),
            ("one span", Batch::default()),
            ("outputs", block(Want::Last, 0..5, &[0, 1])),
            ("a token", block(Want::None, 0..4, &[0, 1])),
            ("page does not", block(Want::None, 0..5, &[0, 3])),
            ("too short", block(Want::None, 0..5, &[0])),
        ];
        for (part, batch) in rows {
            let checked = batch.check_block(&dims, WIDTH).map(|_| ());
            assert!(says(&checked, part), "{part}");
        }
        assert!(sound.check_block(&dims, WIDTH + 1).is_err());
    }

    fn says(result: &Result<(), ForwardError>, part: &str) -> bool {
        matches!(result, Err(ForwardError::BadBatch(why)) if why.contains(part))
    }
}
