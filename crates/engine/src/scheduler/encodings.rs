//! Encodings: which input is encoded in a step and for how long, and the rows that come out.
//!
//! The encoder has the processor of the model, so it works within the step, in units ([`model::Encode`]). One input is
//! encoded at a time: the first of a sequence in prefill whose rows are missing, of the best priority. An encoding under way is kept
//! while a sequence waits for it, whichever began it; a request that ends takes its encoding along unless another one waits
//! for an equal input.
//!
//! # Time
//! The time that the decodes of a step leave goes to prompts or to an encoding, never to both: each can then be measured.
//! Between an account's prompts and encodings it changes with each step; between accounts the fair share decides. Where
//! decodes leave less than a unit takes, time is saved up over several steps. So the encoding of a large image delays no token
//! by more than a unit, and a prompt at the same time takes at most twice as long.

use super::Scheduler;
use super::priority::SchedulingPriority;
use crate::fair_share::PREFILL_COST;
use crate::media::EncodingCache;
use crate::sequence::Sequence;
use crate::stats::{Stats, count};
use crate::step_time::move_estimate;
use crate::terms::Age;
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
    planned: Option<PlannedEncoding>,
    time: EncodingTime,
    /// Whether the last step that had both prompts and an encoding to compute took the encoding.
    was_encoding: bool,
    /// Units of the last step, and the request that they were for.
    units_run: usize,
    progress: Option<Arc<Progress>>,
}

/// Units of an encoding in this step.
#[derive(Clone, Copy)]
pub(crate) struct PlannedEncoding {
    /// The sequence that they are for.
    key: usize,
    age: Age,
    /// Number in place of the input's rows.
    row: u32,
    units: usize,
    /// Whether there are decodes in the step.
    beside_decodes: bool,
}

/// The learned time of a unit.
#[derive(Default)]
struct EncodingTime {
    /// 0 = not measured yet.
    unit_ns: u64,
    /// Time that was left to encodings and not used.
    saved_ns: u64,
}

/// Outcome of a unit.
#[derive(Clone, Copy)]
pub(crate) enum UnitOutcome<'a> {
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
            planned: None,
            time: EncodingTime::default(),
            was_encoding: false,
            units_run: 0,
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

    /// Whether the last step was longer because of an encoding.
    pub(super) fn have_run(&self) -> bool {
        self.units_run > 0
    }

    /// Forgets what is being encoded: the device has failed.
    pub(super) fn forget_current(&mut self) {
        self.current = None;
        self.planned = None;
    }

    /// Learns from the step that has ended, of which `decodes_ns` fell to decodes.
    fn record_step(&mut self, step_ns: u64, decodes_ns: u64, stats: &Stats) {
        let units = std::mem::take(&mut self.units_run);
        let progress = self.progress.take();
        let Some(planned) = self.planned.filter(|_| units > 0) else {
            return;
        };
        let decodes_ns = if planned.beside_decodes {
            decodes_ns
        } else {
            0
        };
        let ns = step_ns.saturating_sub(decodes_ns);
        self.time.record(units, ns);
        stats.encode_ns.fetch_add(ns, Ordering::Relaxed);
        if let Some(progress) = progress {
            progress.add_encode(ns);
        }
    }

    /// Keeps the encoded inputs that a sequence in prefill waits with, and finds out how far it can be computed. Returns what
    /// stands for the first input whose rows are missing.
    fn seek(&mut self, sequence: &mut Sequence, stats: &Stats) -> Option<u32> {
        let media = sequence.media.clone();
        let known = media.inputs().len() - media.inputs_from(sequence.computed).len();
        sequence.computable = usize::MAX;
        for (at, input) in media.inputs().iter().enumerate().skip(known) {
            let is_new = at >= sequence.inputs_sought;
            sequence.inputs_sought = sequence.inputs_sought.max(at + 1);
            if !self.cache.pin(input.row) {
                sequence.computable = input.rows().start;
                return Some(input.row);
            }
            count(&stats.encoding_hits, usize::from(is_new));
        }
        None
    }

    /// Whether there is room for the rows of an input, and for what sequences wait with.
    fn has_room(&self, rows: usize) -> bool {
        let width = self.encoder.map_or(0, |encoder| encoder.row_width);
        self.cache.has_room(rows * width * size_of::<f32>())
    }
}

impl EncodingTime {
    /// Units for a step with this much time left; without `decodes` at least one, and all for `None`.
    fn take_units(&mut self, left_ns: Option<u64>, decodes: usize) -> usize {
        let Some(left_ns) = left_ns else {
            return usize::MAX;
        };
        let Some(unit_ns) = std::num::NonZeroU64::new(self.unit_ns) else {
            return 1;
        };
        if decodes == 0 {
            return (left_ns / unit_ns).max(1) as usize;
        }
        let most = left_ns.max(unit_ns.get());
        self.saved_ns = self.saved_ns.saturating_add(left_ns).min(most);
        let units = self.saved_ns / unit_ns;
        self.saved_ns -= units * unit_ns.get();
        units as usize
    }

    fn record(&mut self, units: usize, ns: u64) {
        self.unit_ns = move_estimate(self.unit_ns, (ns / units.max(1) as u64).max(1));
    }
}

impl Scheduler {
    /// Learns from the last step's encoding.
    pub(super) fn time_encoding(&mut self, step_ns: u64) {
        let decodes_ns = self.rows.decodes_ns();
        self.encodings
            .record_step(step_ns, decodes_ns, &self.inbox.stats);
    }

    /// The part of the last step that did not fall to an encoding: the decodes, as far as is known.
    pub(crate) fn without_encoding(&self, step_ns: u64) -> u64 {
        if self.encodings.have_run() {
            step_ns.min(self.rows.decodes_ns())
        } else {
            step_ns
        }
    }

    /// Finds out how far each sequence in prefill can be computed, and chooses what is encoded. Returns whether the time
    /// that decodes leave goes to an encoding in this step.
    pub(super) fn select_encoding(&mut self, decodes: usize) -> bool {
        self.encodings.planned = None;
        if self.encodings.encoder.is_none() {
            return false;
        }
        self.encodings.cache.begin_plan();
        let (mut current, mut first) = (None, None);
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            let Some(claim) = self.encoding_claim(key) else {
                continue;
            };
            let best = if self.encodings.current == Some(claim.row) {
                &mut current
            } else {
                &mut first
            };
            if best
                .as_ref()
                .is_none_or(|best: &EncodingClaim| claim.priority < best.priority)
            {
                *best = Some(claim);
            }
        }
        let may_begin = |claim: &EncodingClaim| self.encodings.has_room(claim.rows);
        let Some(claim) = current.or_else(|| first.filter(may_begin)) else {
            return false;
        };
        if !self.is_turn_of(&claim) {
            return false;
        }
        self.plan_units(&claim, decodes);
        true
    }

    /// The claim on the encoder of a sequence in prefill whose rows are missing.
    fn encoding_claim(&mut self, key: usize) -> Option<EncodingClaim> {
        let stats = &self.inbox.stats;
        let sequence = self.table.get_mut(key)?;
        if sequence.media.is_empty() || !sequence.is_prefilling() {
            return None;
        }
        let row = self.encodings.seek(sequence, stats)?;
        let inputs = sequence.media.inputs().iter();
        let rows = inputs.filter(|input| input.row == row);
        let rows = rows.map(|input| input.rows().len()).next();
        let sequence = self.table.get(key)?;
        let fair_share = self.table.fair_share(sequence.slot);
        Some(EncodingClaim {
            key,
            age: sequence.age,
            row,
            rows: rows.unwrap_or(0),
            priority: self.priority.row_priority(fair_share, sequence, self.clock),
        })
    }

    /// Whether an encoding goes before the prompts that can be computed.
    fn is_turn_of(&mut self, claim: &EncodingClaim) -> bool {
        let prefilling = self.table.live();
        let prompts = prefilling.filter(|(_, s)| s.is_prefilling() && s.rows_wanted() > 0);
        let priority = |(_, sequence): (usize, &Sequence)| {
            let fair_share = self.table.fair_share(sequence.slot);
            let priority = self.priority.row_priority(fair_share, sequence, self.clock);
            priority.without_age()
        };
        let of_encoding = claim.priority.without_age();
        let is_turn = match prompts.map(priority).min() {
            None => return true,
            Some(of_prompt) if of_prompt == of_encoding => !self.encodings.was_encoding,
            Some(of_prompt) => of_encoding < of_prompt,
        };
        self.encodings.was_encoding = is_turn;
        is_turn
    }

    /// Plans the units of an encoding.
    fn plan_units(&mut self, claim: &EncodingClaim, decodes: usize) {
        let left_ns = self.rows.left_ns(decodes);
        let time = &mut self.encodings.time;
        let units = time.take_units(left_ns, decodes);
        self.encodings.planned = (units > 0).then_some(PlannedEncoding {
            key: claim.key,
            age: claim.age,
            row: claim.row,
            units,
            beside_decodes: decodes > 0,
        });
        let Some((sequence, request)) = self.table.pair(claim.key) else {
            return;
        };
        debug_assert_eq!(sequence.age, claim.age);
        self.encodings.progress = Some(Arc::clone(&request.progress));
    }

    /// Charges the account of a sequence for a unit as for rows that take as long.
    fn charge_unit(&mut self, key: usize) {
        let Some((_, request)) = self.table.pair(key) else {
            return;
        };
        let fair_share = request.fair_share;
        let unit_ns = self.encodings.time.unit_ns;
        let rows = unit_ns.checked_div(self.rows.prefill_row_ns());
        let fair_shares = self.priority.fair_shares_mut();
        fair_shares.set_rows_given(fair_share, self.clock.now_ns());
        fair_shares.charge(fair_share, PREFILL_COST.saturating_mul(rows.unwrap_or(1)));
    }
}

/// A sequence that waits for an encoding.
struct EncodingClaim {
    key: usize,
    age: Age,
    /// Number in place of the input's rows.
    row: u32,
    /// Number of the input's rows.
    rows: usize,
    priority: SchedulingPriority,
}

impl Scheduler {
    /// The number of units to run in this step.
    pub(crate) fn units_planned(&self) -> usize {
        self.encodings.planned.map_or(0, |planned| planned.units)
    }

    /// Whether the planned encoding has to be begun, and its input; `None`: the sequence that waits for it has ended.
    pub(crate) fn begin_planned(&mut self) -> Option<(bool, EncoderInput)> {
        let planned = self.encodings.planned?;
        let sequence = self.table.get(planned.key)?;
        let mut inputs = sequence.media.inputs().iter();
        let input = inputs.find(|input| input.row == planned.row)?;
        if sequence.age != planned.age {
            return None;
        }
        let begins = self.encodings.current != Some(planned.row);
        self.encodings.current = Some(planned.row);
        Some((begins, Arc::clone(&input.input)))
    }

    /// Applies a unit's outcome. Returns whether another unit may follow.
    pub(crate) fn apply_unit(&mut self, outcome: UnitOutcome<'_>) -> bool {
        let Some(planned) = self.encodings.planned else {
            return false;
        };
        self.encodings.units_run += 1;
        self.charge_unit(planned.key);
        let outcome = match outcome {
            UnitOutcome::Goes => return true,
            UnitOutcome::Rows(rows) => self.finish_encoding(&planned, rows),
            UnitOutcome::Failed(code) => Err(code),
        };
        self.encodings.current = None;
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
    fn finish_encoding(&mut self, planned: &PlannedEncoding, rows: &[f32]) -> Result<(), FailCode> {
        let wanted = self.table.get(planned.key).and_then(|sequence| {
            let mut inputs = sequence.media.inputs().iter();
            let input = inputs.find(|input| input.row == planned.row)?;
            Some(input.rows().len() * self.encodings.encoder?.row_width)
        });
        if wanted.is_some_and(|wanted| wanted != rows.len()) {
            return Err(FailCode::Inference);
        }
        if !rows.iter().all(|entry| entry.is_finite()) {
            return Err(FailCode::NotFinite);
        }
        let stats = &self.inbox.stats;
        let dropped = self.encodings.cache.insert(planned.row, rows);
        count(&stats.encodings, 1);
        count(&stats.encodings_dropped, dropped);
        let bytes = self.encodings.cache.bytes() as u64;
        stats.encoding_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn units_fit_the_time_that_decodes_leave() {
        let mut time = EncodingTime::default();
        assert_eq!(time.take_units(Some(100 * MS), 3), 1, "not measured yet");
        time.record(2, 80 * MS);
        assert_eq!(time.take_units(None, 3), usize::MAX, "no target");
        assert_eq!(time.take_units(Some(100 * MS), 0), 2, "no decodes");
        assert_eq!(time.take_units(Some(10 * MS), 0), 1, "at least one");
        assert_eq!(time.take_units(Some(100 * MS), 3), 2);
        // 15 ms of each step are saved up for a unit of 40 ms.
        let units: Vec<_> = (0..9).map(|_| time.take_units(Some(15 * MS), 3)).collect();
        assert_eq!(units.iter().sum::<usize>(), 3, "{units:?}");
        assert!(units.iter().all(|&units| units <= 1));
    }
}
