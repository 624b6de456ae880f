//! Blocks: which sequence's rows that see each other are computed in a step, and for how long.
//!
//! The pass over a block has stopped after each unit ([`model::AdvanceBlock`]), so a step computes as many units as fit its time
//! ([`super::units`]), or several at once where no decode waits. One block is under way at a time. The pass continues while its sequence waits for it; a sequence that ends,
//! is parked or loses its pages leaves it to the next claim, and its own block begins anew. Positions count as computed when
//! the last unit is done, but for the last row, which the sequence's next chunk computes: so nothing of an
//! unfinished block gets into the prefix index, and the logits of a prompt that ends with an image come from a chunk.

use super::Scheduler;
use super::sequence_table::SequenceTable;
use super::units::UnitClock;
use crate::plan::PlannedSpan;
use crate::stats::count;
use crate::terms::Age;
use model::{Batch, Want};
use std::ops::Range;
use stream::FailCode;

/// The pass over a block.
#[derive(Default)]
pub(super) struct Blocks {
    pub(super) clock: UnitClock,
    current: Option<BlockUnderWay>,
    /// The sequence whose block failed in the last unit, which is tried once more.
    failed: Option<(usize, Age)>,
}

/// A block that was begun.
struct BlockUnderWay {
    key: usize,
    age: Age,
    positions: Range<usize>,
    units: usize,
    rows_charged: usize,
}

/// Outcome of a call of the model for a block.
#[derive(Clone, Copy)]
pub(crate) enum BlockOutcome {
    /// The pass over the block has begun: its units.
    Begun(usize),
    /// So many units are left.
    Left(usize),
    Failed(FailCode),
}

impl Blocks {
    /// Whether the block of this sequence is under way.
    pub(super) fn is_current(&self, key: usize, age: Age) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| (current.key, current.age) == (key, age))
    }

    /// Panics if the sequence of the block under way has other positions to compute next.
    pub(super) fn check(&self, table: &SequenceTable) {
        let Some(block) = &self.current else { return };
        let sequence = table.get(block.key).filter(|s| s.age == block.age);
        let is_next = sequence.is_none_or(|s| s.computed == block.positions.start);
        assert!(is_next, "a block under way was left behind");
    }

    /// Forgets what is under way: the pages are lost.
    pub(super) fn forget_current(&mut self) {
        self.current = None;
        self.clock.planned = None;
    }

    /// Forgets what is under way of the sequence under this key, which loses its pages.
    pub(super) fn forget(&mut self, key: usize) {
        self.current.take_if(|current| current.key == key);
    }
}

impl Scheduler {
    /// Whether units of a block are planned for this step.
    pub(crate) fn has_block_units(&self) -> bool {
        self.blocks.clock.planned.is_some()
    }

    /// Takes the time of the next units of a block, as [`UnitClock::take_together`].
    pub(crate) fn take_block_units(&mut self, cost: impl Fn(usize) -> u64) -> usize {
        self.blocks.clock.take_together(cost)
    }

    /// Whether the planned block has to be begun; then it is written to the batch. `None`: the sequence has ended or lost its
    /// pages, or the block is done.
    pub(crate) fn put_block(&self, batch: &mut Batch) -> Option<bool> {
        let planned = self.blocks.clock.planned?;
        let sequence = self.table.get(planned.key)?;
        if sequence.age != planned.age || !sequence.awaits_block() {
            return None;
        }
        if self.blocks.is_current(planned.key, planned.age) {
            return Some(false);
        }
        let positions = sequence.media.next_block(sequence.computed)?;
        batch.clear();
        batch.push_adapted(
            &sequence.tokens[positions.clone()],
            positions.start,
            &sequence.pages,
            Want::None,
            sequence.root.adapters,
        );
        let media = &sequence.media;
        media.put_rows(batch, |row| self.encodings.rows(row));
        Some(true)
    }

    /// Applies the outcome of a call. Returns whether another one may follow.
    pub(crate) fn apply_block(&mut self, outcome: BlockOutcome) -> bool {
        let Some(planned) = self.blocks.clock.planned else {
            return false;
        };
        let (key, age) = (planned.key, planned.age);
        match outcome {
            BlockOutcome::Begun(units) => {
                self.blocks.failed = None;
                let sequence = self.table.get(key);
                let block = sequence.and_then(|s| s.media.next_block(s.computed));
                self.blocks.current = block.map(|positions| BlockUnderWay {
                    key,
                    age,
                    positions,
                    units,
                    rows_charged: 0,
                });
                true
            }
            BlockOutcome::Left(left) => {
                self.finish_units(left);
                if left == 0 {
                    self.blocks.clock.end_work();
                    self.finish_block();
                }
                left > 0
            }
            BlockOutcome::Failed(code) => {
                count(&self.inbox.stats.retries, 1);
                let is_second = self.blocks.failed.replace((key, age)) == Some((key, age));
                if is_second {
                    self.blocks.current = None;
                    self.fail(key, code);
                }
                !is_second
            }
        }
    }

    /// Counts units, and charges the account for their part of the rows.
    fn finish_units(&mut self, left: usize) {
        self.blocks.failed = None;
        let Some(block) = &mut self.blocks.current else {
            return;
        };
        let units_done = block.units.saturating_sub(left);
        let done = block.positions.len() * units_done / block.units.max(1);
        let rows = done.saturating_sub(block.rows_charged);
        block.rows_charged += rows;
        let Some((sequence, request)) = self.table.pair_mut(block.key) else {
            return;
        };
        let charged = rows.min(sequence.uncharged);
        sequence.uncharged -= charged;
        let fair_shares = &mut self.priority.fair_shares;
        fair_shares.charge_prefill(request.fair_share, charged);
        fair_shares.set_rows_given(request.fair_share, self.clock.now_ns());
    }

    /// Accepts the positions of the block that was computed, but for the last.
    fn finish_block(&mut self) {
        let Some(block) = self.blocks.current.take() else {
            return;
        };
        let rows = block.positions.len() as u64;
        let all_rows = &self.inbox.stats.rows;
        all_rows.fetch_add(rows, std::sync::atomic::Ordering::Relaxed);
        self.apply_positions(&PlannedSpan {
            key: block.key,
            age: block.age,
            positions: block.positions.start..block.positions.end - 1,
            is_sampled: false,
        });
    }
}
