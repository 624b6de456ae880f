//! What a registry remembers of entries it no longer has.

use super::caller::Owner;
use crate::StreamId;
use std::collections::{HashMap, VecDeque};

/// Why an entry was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// It had ended [`retention`](super::RegistryLimits::retention) ago.
    Expired,
    /// More had ended than [`retained_max`](super::RegistryLimits::retained_max).
    Count,
    /// What had ended was larger than [`retained_bytes_max`](super::RegistryLimits::retained_bytes_max).
    Bytes,
    /// Somebody asked for it.
    Forgotten,
    /// Its [`Registration`](super::Registration) was dropped without a word.
    Dropped,
}

impl Eviction {
    /// Every cause, for those who label by it.
    pub const ALL: [Self; 5] = [
        Self::Expired,
        Self::Count,
        Self::Bytes,
        Self::Forgotten,
        Self::Dropped,
    ];
}

/// The last entries taken out: a ring with an index.
pub(super) struct Gone {
    max: usize,
    index: HashMap<StreamId, Trace>, // as many as in `ring`, or fewer
    ring: VecDeque<(StreamId, u64)>, // oldest first; 0 ..= max
}

/// What is left of an entry.
#[derive(Clone, Copy)]
pub(super) struct Trace {
    /// The entry's number, should its id come twice.
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

    /// Remembers one more, and forgets the oldest where there are too many.
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
