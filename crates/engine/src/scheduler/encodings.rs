//! Encodings: which input is encoded in a step and for how long, and the rows that come out.
//!
//! The encoder has the processor of the model, so it works within the step, in units ([`model::Encode`]). One input is
//! encoded at a time: the first of a sequence in prefill whose rows are missing, of the best priority. An encoding under way is kept
//! while a sequence waits for it, whichever began it; a request that ends takes its encoding along unless another one waits
//! for an equal input. How many units a step computes is decided in [`super::units`].

use super::Scheduler;
use super::units::{UnitClock, UnitWork};
use crate::media::EncodingCache;
use crate::sequence::Sequence;
use crate::stats::{Stats, count};
use crate::{EngineConfig, Progress};
use model::{EncoderDims, EncoderInput};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stream::FailCode;

/// The encoder's work, and the rows that were computed.
pub(super) struct Encodings {
    encoder: Option<EncoderDims>,
    cache: EncodingCache,
    /// Number of the input that is being encoded, if one is.
    current: Option<u32>,
    /// Number in place of the rows of the input that is planned.
    planned_row: u32,
    pub(super) clock: UnitClock,
    /// The request that the units are for.
    progress: Option<Arc<Progress>>,
}

/// Outcome of a call of the encoder.
#[derive(Clone, Copy)]
pub(crate) enum UnitOutcome<'a> {
    /// The encoding has begun.
    Begun,
    /// More units follow.
    Goes,
    /// The encoding's rows.
    Rows(&'a [f32]),
    Failed(FailCode),
}

impl Encodings {
    pub(super) fn new(config: &EngineConfig, encoder: Option<EncoderDims>) -> Self {
        Self {
            encoder,
            cache: EncodingCache::new(config.encodings_bytes_max),
            current: None,
            planned_row: 0,
            clock: UnitClock::default(),
            progress: None,
        }
    }

    /// Rows of an input, by what stands for them.
    pub(super) fn rows(&self, row: u32) -> Option<&[f32]> {
        self.cache.rows(row)
    }

    /// Panics unless the rows' bytes add up.
    pub(super) fn check(&self) {
        self.cache.check();
    }

    pub(super) fn has_encoder(&self) -> bool {
        self.encoder.is_some()
    }

    /// Releases what sequences waited with, before [`Self::seek`] of each.
    pub(super) fn begin_plan(&mut self) {
        self.cache.begin_plan();
    }

    /// Whether this input is being encoded.
    pub(super) fn is_current(&self, row: u32) -> bool {
        self.current == Some(row)
    }

    /// Notes of which input the planned units are, and the request that they are for.
    pub(super) fn set_planned(&mut self, row: u32, progress: Option<Arc<Progress>>) {
        (self.planned_row, self.progress) = (row, progress);
    }

    /// Forgets what is being encoded: the device has failed.
    pub(super) fn forget_current(&mut self) {
        self.current = None;
        self.clock.planned = None;
    }

    /// Learns from the step that has ended, of which `decodes_ns` fell to decodes.
    pub(super) fn record_step(&mut self, step_ns: u64, decodes_ns: u64, stats: &Stats) {
        let progress = self.progress.take();
        let Some(ns) = self.clock.record_step(step_ns, decodes_ns) else {
            return;
        };
        stats.encode_ns.fetch_add(ns, Ordering::Relaxed);
        if let Some(progress) = progress {
            progress.add_encode(ns);
        }
    }

    /// Keeps the encoded inputs that a sequence in prefill waits with, and finds out how far it can be computed in chunks.
    /// Returns the first input whose rows are missing.
    pub(super) fn seek(&mut self, sequence: &mut Sequence, stats: &Stats) -> Option<UnitWork> {
        let media = sequence.media.clone();
        let known = media.inputs().len() - media.inputs_from(sequence.computed).len();
        let block = media.next_block(sequence.computed);
        sequence.computable = block.map_or(usize::MAX, |block| block.start);
        sequence.encoded = usize::MAX;
        for (at, input) in media.inputs().iter().enumerate().skip(known) {
            let is_new = at >= sequence.inputs_sought;
            sequence.inputs_sought = sequence.inputs_sought.max(at + 1);
            let rows = input.rows();
            if !self.cache.pin(input.row) {
                sequence.encoded = rows.start;
                sequence.computable = sequence.computable.min(rows.start);
                return Some(UnitWork::Encoding {
                    row: input.row,
                    rows: rows.len(),
                });
            }
            count(&stats.encoding_hits, usize::from(is_new));
        }
        None
    }

    /// Whether there is room for the rows of an input, and for what sequences wait with.
    pub(super) fn may_begin(&self, work: UnitWork) -> bool {
        let UnitWork::Encoding { rows, .. } = work else {
            return true;
        };
        let width = self.encoder.map_or(0, |encoder| encoder.row_width);
        self.cache.has_room(rows * width * size_of::<f32>())
    }
}

impl Scheduler {
    /// Whether units of an encoding are planned for this step.
    pub(crate) fn has_encoding_units(&self) -> bool {
        self.encodings.clock.planned.is_some()
    }

    /// Takes the time of the next unit of an encoding. Returns whether this step has it.
    pub(crate) fn take_encoding_unit(&mut self, cost: u64) -> bool {
        self.encodings.clock.take(cost)
    }

    /// Whether the planned encoding has to be begun, and its input; `None`: the sequence that waits for it has ended.
    pub(crate) fn begin_planned(&mut self) -> Option<(bool, EncoderInput)> {
        let planned = self.encodings.clock.planned?;
        let row = self.encodings.planned_row;
        let sequence = self.table.get(planned.key)?;
        let mut inputs = sequence.media.inputs().iter();
        let input = inputs.find(|input| input.row == row)?;
        if sequence.age != planned.age {
            return None;
        }
        let begins = self.encodings.current.replace(row) != Some(row);
        Some((begins, Arc::clone(&input.input)))
    }

    /// Applies the outcome of a call. Returns whether another one may follow.
    pub(crate) fn apply_unit(&mut self, outcome: UnitOutcome<'_>) -> bool {
        let Some(planned) = self.encodings.clock.planned else {
            return false;
        };
        if !matches!(outcome, UnitOutcome::Begun) {
            self.charge_time(planned.key, self.encodings.clock.taken_ns());
        }
        let outcome = match outcome {
            UnitOutcome::Begun | UnitOutcome::Goes => return true,
            UnitOutcome::Rows(rows) => self.finish_encoding(planned.key, rows),
            UnitOutcome::Failed(code) => Err(code),
        };
        self.encodings.current = None;
        self.encodings.clock.end_work();
        if let Err(code) = outcome {
            count(&self.inbox.stats.encodings_failed, 1);
            if self.is_alive(planned.key, planned.age) {
                self.fail(planned.key, code);
            }
        }
        false
    }

    /// Keeps the rows of an encoding.
    ///
    /// # Errors
    /// They are not as many as the input's, or not finite.
    fn finish_encoding(&mut self, key: usize, rows: &[f32]) -> Result<(), FailCode> {
        let row = self.encodings.planned_row;
        let wanted = self.table.get(key).and_then(|sequence| {
            let mut inputs = sequence.media.inputs().iter();
            let input = inputs.find(|input| input.row == row)?;
            Some(input.rows().len() * self.encodings.encoder?.row_width)
        });
        if wanted.is_some_and(|wanted| wanted != rows.len()) {
            return Err(FailCode::Inference);
        }
        if !rows.iter().all(|entry| entry.is_finite()) {
            return Err(FailCode::NotFinite);
        }
        let stats = &self.inbox.stats;
        let dropped = self.encodings.cache.insert(row, rows);
        count(&stats.encodings, 1);
        count(&stats.encodings_dropped, dropped);
        let bytes = self.encodings.cache.bytes() as u64;
        stats.encoding_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}
