//! Tokens and ends that the recorder shows once a commit is acknowledged.

use std::collections::VecDeque;

/// Commit of a record that was appended in this turn.
const THIS_TURN: u64 = u64::MAX;

/// Records of streams in the order of commits.
#[derive(Default)]
pub(crate) struct PendingShows {
    queue: VecDeque<PendingShow>,
}

/// Something to be shown.
struct PendingShow {
    /// Number of the commit that contains the record.
    commit: u64,
    /// Index of the stream in the recorder's table.
    index: u32,
    shown: Shown,
}

/// Part of a stream that is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// Tokens of a choice before this index.
    Tokens { choice: u32, tokens: u64 },
    /// The end of a choice.
    End { choice: u32 },
    /// The first changes of the handle.
    Changes { changes: u64 },
    /// Everything; the handle was dropped, and nothing of the stream follows.
    Released,
}

impl PendingShows {
    /// Adds something that was appended in this turn.
    pub(crate) fn push(&mut self, index: u32, shown: Shown) {
        self.queue.push_back(PendingShow {
            commit: THIS_TURN,
            index,
            shown,
        });
    }

    /// Sets the commit of what was appended in this turn.
    pub(crate) fn set_commit(&mut self, commit: u64) {
        let last = self.queue.iter_mut().rev();
        for show in last.take_while(|show| show.commit == THIS_TURN) {
            show.commit = commit;
        }
    }

    /// Indexes of the streams whose changes were appended in this turn.
    pub(crate) fn changed_in_this_turn(&self) -> impl Iterator<Item = u32> {
        let last = self.queue.iter().rev();
        let of_turn = last.take_while(|show| show.commit == THIS_TURN);
        of_turn.filter_map(|show| match show.shown {
            Shown::Changes { .. } => Some(show.index),
            _ => None,
        })
    }

    /// The first entry, if its commit is acknowledged.
    pub(crate) fn pop_acknowledged(&mut self, acknowledged: u64) -> Option<(u32, Shown)> {
        let is_acknowledged = |show: &mut PendingShow| show.commit <= acknowledged;
        let show = self.queue.pop_front_if(is_acknowledged)?;
        Some((show.index, show.shown))
    }
}
