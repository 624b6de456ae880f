//! Memory of removed entries.

use super::caller::Owner;
use crate::StreamId;
use std::collections::{HashMap, VecDeque};

/// Why an entry was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// The stream ended [`retention`](super::RegistryLimits::retention) ago.
    Expired,
    /// More streams were retained than [`retained_max`](super::RegistryLimits::retained_max).
    Count,
    /// The retained streams were larger than [`retained_bytes_max`](super::RegistryLimits::retained_bytes_max).
    Bytes,
    /// Removed on request.
    Forgotten,
    /// The [`Registration`](super::Registration) was dropped without an end.
    Dropped,
}

impl Eviction {
    /// All causes, for metric labels.
    pub const ALL: [Self; 5] = [
        Self::Expired,
        Self::Count,
        Self::Bytes,
        Self::Forgotten,
        Self::Dropped,
    ];
}

/// The last removed entries: a ring buffer with an index.
pub(super) struct Gone {
    max: usize,
    index: HashMap<StreamId, Trace>, // as many as in `ring`, or fewer
    ring: VecDeque<(StreamId, u64)>, // oldest first; 0 ..= max
}

/// The trace that a removed entry leaves.
#[derive(Clone, Copy)]
pub(super) struct Trace {
    /// Number of the entry, in case the id was registered twice.
    number: u64,
    pub(super) owner: Owner,
    pub(super) cause: Eviction,
}

impl Gone {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            index: HashMap::new(),
            ring: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn get(&self, id: StreamId) -> Option<Trace> {
        self.index.get(&id).copied()
    }

    /// Remembers one more entry, and drops the oldest beyond the limit.
    pub(super) fn push(&mut self, id: StreamId, number: u64, owner: Owner, cause: Eviction) {
        if self.max == 0 {
            return;
        }
        if self.ring.len() == self.max {
            self.forget_oldest();
        }
        self.ring.push_back((id, number));
        let trace = Trace {
            number,
            owner,
            cause,
        };
        self.index.insert(id, trace);
    }

    fn forget_oldest(&mut self) {
        let Some((id, number)) = self.ring.pop_front() else {
            return;
        };
        if self.index.get(&id).is_some_and(|t| t.number == number) {
            self.index.remove(&id);
        }
    }
}
