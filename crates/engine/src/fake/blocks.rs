//! Blocks of the fake model: rows whose content depends on all rows of the block, given by the last of some units.
//!
//! Until then the rows have no content, and what is written to them, or to the rows before, is noticed by the next unit. The
//! last row of a block has the content that it has as a row of a batch.

use super::encoder::ROW_WIDTH;
use super::{FakeModel, FaultKind, NOTHING, SIMULATED_ERROR, counted_spans, mix, of_adapters};
use model::{AdvanceBlock, Batch, DeviceFault, ForwardError, SpanView};

/// The block under way.
pub(super) struct FakeBlock {
    batch: Batch,
    /// Kind of each row.
    rows: Vec<u32>,
    /// A hash of the rows before.
    before: u64,
    units_left: usize,
}

impl FakeModel {
    /// Units of each block; 0: there are none, as in a model with recurrent layers.
    pub(super) fn block_units(&self) -> usize {
        let encoder = self.encoder.as_ref().filter(|_| self.states.len() == 0);
        encoder.map_or(0, |encoder| encoder.config.block_units)
    }

    /// Counts a call, and fails it where a failure is to be simulated.
    fn enter_block_call(&mut self) -> Result<(), ForwardError> {
        self.calls += 1;
        if self.is_lost {
            return Err(ForwardError::Device(DeviceFault::Lost));
        }
        if let Some(late) = &self.late {
            late.check_idle();
        }
        match self.fault(&Batch::default()) {
            Some((_, FaultKind::Panic)) => panic!("a simulated panic in a block"),
            Some((_, FaultKind::Abort)) => std::process::abort(),
            Some((_, FaultKind::Device(fault))) => Err(self.lose_device(fault)),
            Some((_, FaultKind::Error)) => Err(ForwardError::BadBatch(SIMULATED_ERROR)),
            Some((_, FaultKind::NotFinite)) => Err(ForwardError::NotFinite { row: 0 }),
            Some((_, FaultKind::NotANumber | FaultKind::LateDevice(_))) | None => Ok(()),
        }
    }

    /// A hash of the content of the slots before a span.
    fn hash_before(&self, span: &SpanView<'_>) -> u64 {
        let slots = (0..span.position).map(|position| self.slots[self.slot(span, position)]);
        slots.fold(7, mix)
    }

    /// Writes the content of the rows of a block, which is all of a batch.
    fn write_block(&mut self, span: &SpanView<'_>) {
        let adapted = of_adapters(span);
        for (position, &input) in (span.position..).zip(span.tokens) {
            let slot = self.slot(span, position);
            (self.inputs[slot], self.tokens[slot]) = (input, 0);
        }
        let end = span.position + span.tokens.len();
        let all = (0..end).map(|position| u64::from(self.inputs[self.slot(span, position)]));
        let hash = all.fold(mix(7, adapted), mix);
        for position in span.position..end {
            let slot = self.slot(span, position);
            self.blocked[slot] = position + 1 < end;
            self.slots[slot] = if self.blocked[slot] {
                mix(hash, position as u64) >> 1
            } else {
                let before = position.checked_sub(1);
                let before = before.map_or(0, |before| self.slots[self.slot(span, before)]);
                mix(before, adapted ^ u64::from(self.inputs[slot])) >> 1
            };
        }
    }

    fn advance(&mut self, block: &mut FakeBlock, units_max: usize) -> Result<usize, ForwardError> {
        self.enter_block_call()?;
        let span = only_span(&block.batch, &block.rows)?;
        let end = span.position + span.tokens.len();
        let is_written = |position| self.slots[self.slot(&span, position)] != NOTHING;
        if (span.position..end).any(is_written) || self.hash_before(&span) != block.before {
            return Err(ForwardError::BadBatch(
                "the pages of a block were written before its end",
            ));
        }
        let units = units_max.min(block.units_left);
        if let Some(encoder) = &self.encoder {
            (0..units).for_each(|_| encoder.config.log.count(4));
        }
        block.units_left -= units;
        if block.units_left == 0 {
            self.write_block(&span);
        }
        Ok(block.units_left)
    }
}

impl AdvanceBlock for FakeModel {
    fn begin_block(&mut self, batch: &Batch) -> Result<usize, ForwardError> {
        self.block = None;
        self.enter_block_call()?;
        batch.check_block(&self.config.dims, ROW_WIDTH)?;
        let mut rows = Vec::new();
        Self::read_rows(batch, &mut rows);
        let span = only_span(batch, &rows)?;
        for position in span.position..span.position + span.tokens.len() {
            let slot = self.slot(&span, position);
            self.slots[slot] = NOTHING;
        }
        let before = self.hash_before(&span);
        if let Some(encoder) = &self.encoder {
            encoder.config.log.count(3);
        }
        self.block = Some(FakeBlock {
            batch: batch.clone(),
            rows,
            before,
            units_left: self.block_units(),
        });
        Ok(self.block_units())
    }

    fn next_cost(&self, units_max: usize) -> u64 {
        let left = self.block.as_ref().map_or(1, |block| block.units_left);
        units_max.min(left) as u64
    }

    fn advance_block(&mut self, units_max: usize) -> Result<usize, ForwardError> {
        let nothing = ForwardError::BadBatch("no block is under way");
        let mut block = self.block.take().ok_or(nothing)?;
        let advance = std::panic::AssertUnwindSafe(|| self.advance(&mut block, units_max));
        let advanced = std::panic::catch_unwind(advance);
        // A unit that failed may be tried again.
        if !matches!(advanced, Ok(Ok(0))) {
            self.block = Some(block);
        }
        advanced.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The span of a block whose rows count as `rows`.
fn only_span<'a>(batch: &'a Batch, rows: &'a [u32]) -> Result<SpanView<'a>, ForwardError> {
    let mut spans = counted_spans(batch, rows);
    spans.next().ok_or(ForwardError::BadBatch("no rows"))
}
