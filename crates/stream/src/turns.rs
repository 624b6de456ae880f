//! Marks by turn: which of many writers have news for one collector, without a flag that both sides write.
//!
//! A writer that has published something marks its place. The mark is the number of the collector's turn, so a place is
//! listed about once for each turn, and the collector writes nothing per place: the line of the mark stays with the
//! writer's core.
//!
//! # Protocol
//!
//! - A **writer** publishes, passes a sequentially consistent fence and calls [`Turns::mark`]. After `true` the writer
//!   adds the place to the list.
//! - The **collector** takes the list, calls [`Turns::begin`], then reads the listed places.
//!
//! # Why nothing is missed
//!
//! A writer that gets `false` has found a mark of at least the turn `t` that the writer has loaded. The thread that made
//! the mark had loaded that turn too, so the list of turn `t` had been taken before the thread adds, or added, the place:
//! a later take has the entry, and the collector reads the place after a `begin` that follows `t`. The writer has
//! loaded `t`, not that later turn, so the writer's fence precedes the fence of that `begin`, and the collector sees what
//! the writer has published.
//!
//! If the collector began the turn first and took the list afterwards, an entry with the mark `t` could be in the list of
//! turn `t`: what is published after the reading of the place would be missed.

use crate::sync::{AtomicU64, Ordering, fence};

/// The number of the collector's turn.
#[derive(Debug)]
pub struct Turns {
    current: AtomicU64, // 1 ..
}

/// A writer's place.
#[derive(Debug)]
pub struct TurnMark {
    last: AtomicU64, // 0: never
}

impl Turns {
    /// The first turn.
    pub fn new() -> Self {
        Self {
            current: AtomicU64::new(1),
        }
    }

    /// Begins the next turn. To be called by the one collector, between the taking of the list and the reading of the
    /// listed places.
    pub fn begin(&self) {
        self.current.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Marks a place for the next turn. `true`: the caller has to add the place to the list. The caller has passed a
    /// sequentially consistent fence after what was published.
    #[inline]
    pub fn mark(&self, mark: &TurnMark) -> bool {
        let current = self.current.load(Ordering::Acquire);
        mark.last.load(Ordering::Relaxed) < current
            && mark.last.fetch_max(current, Ordering::Relaxed) < current
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self::new()
    }
}

impl TurnMark {
    /// A place that was never marked.
    pub fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
        }
    }
}

impl Default for TurnMark {
    fn default() -> Self {
        Self::new()
    }
}
