//! Counts of a relay.

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Requests sent to engines, repeated ones included.
    pub attempts: u64,
    /// Requests sent again after an engine died or lost them.
    pub resubmitted: u64,
    /// Reads of missing tokens.
    pub gap_reads: u64,
    /// Messages of earlier attempts.
    pub stale: u64,
    /// Requests that ended because an engine sent other tokens than before.
    pub diverged: u64,
    /// Vectors of another length than the model's, with an entry that is not finite, or of requests for tokens.
    pub wrong_vectors: u64,
}

#[cfg(test)]
impl RelayCounters {
    pub(super) fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.resubmitted += other.resubmitted;
        self.gap_reads += other.gap_reads;
        self.stale += other.stale;
        self.diverged += other.diverged;
        self.wrong_vectors += other.wrong_vectors;
    }
}
