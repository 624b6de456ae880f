//! Rows of encodings, kept from their computation until the sequences that wait for them have computed the positions, and
//! longer while there is room: the next turn of a conversation, or another prompt about the same image.
//!
//! Rows are kept as the encoder gave them (`f32`), so that a row has the same bits however often it is encoded.

use std::collections::HashMap;

/// Rows of inputs by what stands for them among tokens.
pub(crate) struct EncodingCache {
    bytes_max: usize,
    bytes: usize,
    entries: HashMap<u32, Encoding>,
    /// Numbers uses, so that the least recent one is known.
    uses: u64,
    /// Number of the plan: entries that this plan pinned stay.
    plan: u64,
}

struct Encoding {
    /// Shape `(rows, row_width)`.
    rows: Box<[f32]>,
    used: u64,
    pinned: u64,
}

impl EncodingCache {
    /// `bytes_max`: a new encoding beyond it drops the least recently used ones that no sequence waits for.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            entries: HashMap::new(),
            uses: 0,
            plan: 0,
        }
    }

    /// Begins a plan: nothing is pinned.
    pub(crate) fn begin_plan(&mut self) {
        self.plan += 1;
    }

    /// Keeps an input's rows until the next plan. Returns whether they are there.
    pub(crate) fn pin(&mut self, row: u32) -> bool {
        let Some(entry) = self.entries.get_mut(&row) else {
            return false;
        };
        self.uses += 1;
        (entry.used, entry.pinned) = (self.uses, self.plan);
        true
    }

    /// Rows of an input, shape `(rows, row_width)`.
    pub(crate) fn rows(&self, row: u32) -> Option<&[f32]> {
        Some(&self.entries.get(&row)?.rows)
    }

    /// Whether so many bytes more fit, without those that are not pinned; or nothing is pinned.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let pinned = self.entries.values().filter(|e| e.pinned == self.plan);
        let pinned: usize = pinned.map(Encoding::bytes).sum();
        pinned == 0 || pinned + bytes <= self.bytes_max
    }

    /// Adds rows, and pins them. Returns how many encodings were dropped for them.
    pub(crate) fn insert(&mut self, row: u32, rows: &[f32]) -> usize {
        let before = self.entries.len();
        let bytes = size_of_val(rows);
        while self.bytes + bytes > self.bytes_max
            && let Some(oldest) = self.oldest_unpinned()
        {
            self.remove(oldest);
        }
        let dropped = before - self.entries.len();
        self.remove(row);
        self.uses += 1;
        self.bytes += bytes;
        let entry = Encoding {
            rows: rows.into(),
            used: self.uses,
            pinned: self.plan,
        };
        self.entries.insert(row, entry);
        dropped
    }

    /// Bytes of all rows.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Panics unless the bytes are those of the entries.
    pub(crate) fn check(&self) {
        let bytes: usize = self.entries.values().map(Encoding::bytes).sum();
        assert_eq!(self.bytes, bytes, "bytes of encodings");
    }

    fn remove(&mut self, row: u32) {
        if let Some(entry) = self.entries.remove(&row) {
            self.bytes -= entry.bytes();
        }
    }

    fn oldest_unpinned(&self) -> Option<u32> {
        let unpinned = self.entries.iter().filter(|(_, e)| e.pinned != self.plan);
        unpinned.min_by_key(|(_, e)| e.used).map(|(&row, _)| row)
    }
}

impl Encoding {
    fn bytes(&self) -> usize {
        size_of_val(&self.rows[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for three encodings of four elements.
    fn cache() -> EncodingCache {
        EncodingCache::new(3 * 16)
    }

    #[test]
    fn least_recently_used_encoding_goes_first_and_pinned_ones_stay() {
        let mut cache = cache();
        for row in 0..3 {
            cache.begin_plan();
            assert_eq!(cache.insert(row, &[row as f32; 4]), 0);
        }
        cache.begin_plan();
        assert!(cache.pin(0) && !cache.pin(7));
        assert_eq!(cache.insert(3, &[3.0; 4]), 1);
        assert_eq!(cache.rows(1), None, "the least recently used");
        assert_eq!(cache.rows(0), Some(&[0.0; 4][..]));
        cache.begin_plan();
        assert!(cache.pin(2) && cache.pin(0) && cache.pin(3));
        assert!(!cache.has_room(16));
        assert_eq!(cache.insert(4, &[4.0; 4]), 0, "nothing to drop");
        assert_eq!(cache.bytes(), 4 * 16);
        cache.begin_plan();
        assert!(cache.has_room(48), "nothing is pinned");
        assert_eq!(cache.insert(5, &[5.0; 4]), 2);
        assert_eq!(cache.bytes(), 3 * 16);
    }

    #[test]
    fn encoding_beyond_the_bound_is_alone() {
        let mut cache = cache();
        cache.insert(1, &[1.0; 4]);
        cache.begin_plan();
        assert!(cache.has_room(1 << 20));
        assert_eq!(cache.insert(2, &[2.0; 40]), 1);
        assert_eq!(cache.rows(2).map(<[f32]>::len), Some(40));
        assert_eq!(cache.insert(2, &[3.0; 40]), 0, "the same again");
        assert_eq!(cache.bytes(), 160);
    }
}
