//! A table of which single rows are read, kept as in the file.

use kernels::Format;

/// A table whose rows are decoded one by one, and which is never multiplied: it is not packed for the kernels.
pub struct RowTable {
    /// Format of the rows.
    pub format: Format,
    /// Elements of a row.
    pub cols: usize,
    /// The rows, one after the other.
    pub bytes: Vec<u8>,
}
