//! The runs that are on the disk, least recently used first.

use super::run_prefix::RunKey;
use std::collections::{BTreeMap, HashMap};

/// Runs in the directory: about 100 bytes of memory each.
pub(super) const RUNS_MAX: usize = 65_536;

/// The runs that are on the disk, as the engine thread knows them.
#[derive(Default)]
pub(super) struct RunIndex {
    runs: HashMap<RunKey, IndexedRun>,
    /// By the number of the last use.
    by_use: BTreeMap<u64, RunKey>,
    bytes: u64,
    uses: u64,
}

struct IndexedRun {
    run: u32,
    bytes: u64,
    used: u64,
}

impl RunIndex {
    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn contains(&self, key: RunKey) -> bool {
        self.runs.contains_key(&key)
    }

    /// Adds a run as the most recently used one. `run` is its number in the prefix.
    pub(super) fn insert(&mut self, key: RunKey, run: u32, bytes: u64) {
        self.remove(key);
        self.uses += 1;
        let used = self.uses;
        self.runs.insert(key, IndexedRun { run, bytes, used });
        self.by_use.insert(used, key);
        self.bytes += bytes;
    }

    /// Makes these runs, the first ones of a prefix, the most recently used. The first of them is then used last, so that
    /// eviction takes the ends of prefixes before their beginnings.
    pub(super) fn touch(&mut self, keys: &[RunKey]) {
        for key in keys.iter().rev() {
            if let Some(run) = self.runs.get_mut(key) {
                self.uses += 1;
                self.by_use.remove(&run.used);
                run.used = self.uses;
                self.by_use.insert(run.used, *key);
            }
        }
    }

    /// Forgets a run, if it is known.
    pub(super) fn remove(&mut self, key: RunKey) {
        if let Some(run) = self.runs.remove(&key) {
            self.by_use.remove(&run.used);
            self.bytes -= run.bytes;
        }
    }

    /// The least recently used run, and its number in the prefix.
    pub(super) fn oldest(&self) -> Option<(RunKey, u32)> {
        let (_, key) = self.by_use.first_key_value()?;
        Some((*key, self.runs.get(key)?.run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_prefixes_are_the_oldest() {
        let mut index = RunIndex::default();
        let keys: Vec<RunKey> = (0..6).map(RunKey).collect();
        for (at, &key) in keys.iter().enumerate() {
            index.insert(key, at as u32 % 3, 10);
        }
        index.touch(&keys[..3]);
        index.touch(&keys[3..]);
        assert_eq!((index.len(), index.bytes()), (6, 60));
        let mut order = Vec::new();
        while let Some((key, _)) = index.oldest() {
            order.push(key.0);
            index.remove(key);
        }
        assert_eq!(order, [2, 1, 0, 5, 4, 3]);
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }

    #[test]
    fn run_that_is_inserted_twice_counts_once() {
        let mut index = RunIndex::default();
        index.insert(RunKey(1), 0, 10);
        index.insert(RunKey(1), 0, 12);
        index.remove(RunKey(2));
        assert_eq!((index.len(), index.bytes()), (1, 12));
        assert_eq!(index.oldest(), Some((RunKey(1), 0)));
    }
}
