//! Counts of a registry, for metrics and leak tests.

use super::gone::Eviction;

/// A consistent snapshot of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegistryCounts {
    /// Streams open now.
    pub open: usize,
    /// Ended streams that are retained.
    pub retained: usize,
    /// Bytes of the retained streams.
    pub retained_bytes: usize,
    /// Ids of removed entries that are remembered.
    pub gone: usize,
    /// Streams ever registered.
    pub registered: u64,
    /// Registrations ever rejected.
    pub refused: u64,
    /// Entries ever removed, by cause.
    pub evicted: Evictions,
}

/// Entries ever removed, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// [`Eviction::Expired`].
    pub expired: u64,
    /// [`Eviction::Count`].
    pub count: u64,
    /// [`Eviction::Bytes`].
    pub bytes: u64,
    /// [`Eviction::Forgotten`].
    pub forgotten: u64,
    /// [`Eviction::Dropped`].
    pub dropped: u64,
}

impl Evictions {
    /// The count of a cause.
    pub fn of(&self, cause: Eviction) -> u64 {
        match cause {
            Eviction::Expired => self.expired,
            Eviction::Count => self.count,
            Eviction::Bytes => self.bytes,
            Eviction::Forgotten => self.forgotten,
            Eviction::Dropped => self.dropped,
        }
    }

    pub(super) fn add(&mut self, cause: Eviction) {
        let count = match cause {
            Eviction::Expired => &mut self.expired,
            Eviction::Count => &mut self.count,
            Eviction::Bytes => &mut self.bytes,
            Eviction::Forgotten => &mut self.forgotten,
            Eviction::Dropped => &mut self.dropped,
        };
        *count += 1;
    }
}
