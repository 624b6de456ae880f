//! Whether reading is faster than computing.

/// Refusals after which one prefix is read anyway, so that an old measurement of a slow disk does not count for ever.
const REFUSALS_MAX: u32 = 32;

/// Measured rate of the reads, waiting in the engine's loop included.
#[derive(Debug, Default)]
pub(super) struct ReadRate {
    bytes: u64,
    ns: u64,
    refusals: u32,
}

impl ReadRate {
    /// Learns from a read that took so long. Each read halves the weight of those before.
    pub(super) fn record(&mut self, bytes: u64, ns: u64) {
        self.bytes = self.bytes / 2 + bytes;
        self.ns = self.ns / 2 + ns.max(1);
    }

    /// Whether reading so many bytes is expected to take less time than computing so many tokens, at `row_ns` each; also true
    /// where either is not known yet (`row_ns` 0).
    pub(super) fn is_faster(&mut self, bytes: u64, tokens: usize, row_ns: u64) -> bool {
        if self.bytes == 0 || row_ns == 0 {
            return true;
        }
        let reading = u128::from(self.ns) * u128::from(bytes) / u128::from(self.bytes);
        let computing = u128::from(row_ns) * tokens as u128;
        if reading < computing {
            self.refusals = 0;
            return true;
        }
        self.refusals += 1;
        let is_trial = self.refusals > REFUSALS_MAX;
        if is_trial {
            self.refusals = 0;
        }
        is_trial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn slow_disk_is_read_only_as_a_trial() {
        let mut rate = ReadRate::default();
        assert!(rate.is_faster(1000, 10, MS), "nothing is known");
        rate.record(1000, 5 * MS);
        assert!(rate.is_faster(1000, 10, 0), "no prompt was computed yet");
        assert!(rate.is_faster(1000, 10, MS), "5 ms and 10 ms");
        rate.record(1000, 100 * MS);
        let read = (0..100).filter(|_| rate.is_faster(1000, 10, MS)).count();
        assert_eq!(read, 3);
        // Fast again: each read counts half of the one before.
        for _ in 0..8 {
            rate.record(1000, MS);
        }
        assert!(rate.is_faster(1000, 10, MS));
    }
}
