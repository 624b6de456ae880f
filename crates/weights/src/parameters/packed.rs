//! Progress of packing.

/// Progress of packing a file. Counts increase, totals are constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of finished tensors, as stored.
    pub bytes_done: u64,
    /// Bytes of all tensors.
    pub bytes_total: u64,
    /// Finished tensors.
    pub tensors_done: u64,
    /// All tensors.
    pub tensors_total: u64,
}
