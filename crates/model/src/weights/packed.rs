//! How far packing is.

/// What was packed of a file. Counts rise, totals stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of the tensors that are done, as the file has them.
    pub bytes_done: u64,
    /// Bytes of all tensors.
    pub bytes_total: u64,
    /// Tensors that are done.
    pub tensors_done: u64,
    /// All tensors.
    pub tensors_total: u64,
}
