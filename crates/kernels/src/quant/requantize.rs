//! Converting rows of weights to another format or order, spread over threads.

use super::fit::ScaleFit;
use super::rows::{byte_count, dequantize, write_weights};
use crate::{Format, Pool};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A weight that is infinite or NaN, by index into the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonFiniteWeight(pub usize);

/// Converts a matrix of `cols` columns, stored in `raw` in the format `from`, to the format `to`, with the
/// scales of [`quantize_with_search`](super::quantize_with_search). Row `r` of the result is row `row_of(r)` of
/// `raw`. Where the formats are equal, bytes are only moved.
///
/// # Errors
/// The first weight that is not finite, where weights are converted.
///
/// # Panics
/// If `raw` is no whole number of rows, a row no whole number of blocks of either format, or `row_of` returns a
/// row out of range.
pub fn requantize_rows(
    pool: &mut Pool,
    (from, raw): (Format, &[u8]),
    cols: usize,
    to: Format,
    row_of: impl Fn(usize) -> usize + Sync,
) -> Result<Vec<u8>, NonFiniteWeight> {
    let (row_from, row_to) = (byte_count(from, cols), byte_count(to, cols));
    assert!(
        row_from > 0 && raw.len().is_multiple_of(row_from),
        "{} bytes are no whole rows of {row_from}",
        raw.len()
    );
    let mut out = vec![0; raw.len() / row_from * row_to];
    let first_bad = AtomicUsize::new(usize::MAX);
    pool.rows(&mut out, row_to, |row, out| {
        let source = row_of(row);
        let raw = &raw[source * row_from..(source + 1) * row_from];
        if from == to {
            return out.copy_from_slice(raw);
        }
        let mut weights = vec![0.0; cols];
        dequantize(from, raw, &mut weights);
        match weights.iter().position(|weight| !weight.is_finite()) {
            None => write_weights(ScaleFit::Search, to, &weights, out),
            Some(bad) => _ = first_bad.fetch_min(source * cols + bad, Ordering::Relaxed),
        }
    });
    match first_bad.into_inner() {
        usize::MAX => Ok(out),
        bad => Err(NonFiniteWeight(bad)),
    }
}
