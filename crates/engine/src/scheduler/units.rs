//! Work in units: an encoding ([`super::encodings`]) or the pass over a block ([`super::blocks`]), for how long, and whose turn
//! it is.
//!
//! The time that the decodes of a step leave goes to prompts, to an encoding or to a block, to one of them alone, so that the
//! cost of each can be measured. Between an account's prompts and its units it changes with each step; between accounts the
//! fair share decides. Where decodes leave less than a unit takes, time is saved up over several steps. So an image delays no
//! token by more than a unit, and a prompt at the same time takes at most twice as long.

use super::Scheduler;
use super::priority::SchedulingPriority;
use crate::fair_share::PREFILL_COST;
use crate::sequence::Sequence;
use crate::step_time::move_estimate;
use crate::terms::Age;
use std::sync::Arc;

/// Units in this step.
#[derive(Clone, Copy)]
pub(super) struct PlannedUnits {
    /// The sequence that they are for.
    pub(super) key: usize,
    pub(super) age: Age,
    pub(super) units: usize,
    /// Whether there are decodes in the step.
    beside_decodes: bool,
}

/// The learned time of a unit, and the units of a step.
#[derive(Default)]
pub(super) struct UnitClock {
    /// 0 = not measured yet.
    pub(super) unit_ns: u64,
    /// Time that was left to units and not used.
    saved_ns: u64,
    pub(super) planned: Option<PlannedUnits>,
    /// Units of the last step.
    run: usize,
}

impl UnitClock {
    /// Counts a unit that was computed.
    pub(super) fn count_unit(&mut self) {
        self.run += 1;
    }

    /// Whether the last step was longer because of units.
    fn has_run(&self) -> bool {
        self.run > 0
    }

    /// Learns from the step that has ended, of which `decodes_ns` fell to decodes. Returns the time of its units.
    pub(super) fn record_step(&mut self, step_ns: u64, decodes_ns: u64) -> Option<u64> {
        let units = std::mem::take(&mut self.run);
        let planned = self.planned.filter(|_| units > 0)?;
        let decodes_ns = if planned.beside_decodes {
            decodes_ns
        } else {
            0
        };
        let ns = step_ns.saturating_sub(decodes_ns);
        self.record(units, ns);
        Some(ns)
    }

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

/// A sequence in prefill that can get on with a unit only.
#[derive(Clone, Copy)]
struct UnitClaim {
    key: usize,
    age: Age,
    work: UnitWork,
    priority: SchedulingPriority,
}

/// Work that units are computed of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitWork {
    Block,
    /// Of the input with `rows` rows for which `row` stands.
    Encoding {
        row: u32,
        rows: usize,
    },
}

/// The best claims: on work that is under way, and on work to be begun.
#[derive(Default)]
struct Claims {
    current: Option<UnitClaim>,
    first: Option<UnitClaim>,
}

impl Claims {
    fn add(&mut self, claim: UnitClaim, is_current: bool) {
        let best = if is_current {
            &mut self.current
        } else {
            &mut self.first
        };
        if best.is_none_or(|best| claim.priority < best.priority) {
            *best = Some(claim);
        }
    }
}

impl Scheduler {
    /// Learns from the units of the last step.
    pub(super) fn time_units(&mut self, step_ns: u64) {
        let decodes_ns = self.rows.step_time.decodes_ns();
        self.blocks.clock.record_step(step_ns, decodes_ns);
        self.encodings
            .record_step(step_ns, decodes_ns, &self.inbox.stats);
    }

    /// Whether the last step was longer because of units.
    pub(super) fn have_units_run(&self) -> bool {
        self.encodings.clock.has_run() || self.blocks.clock.has_run()
    }

    /// The part of the last step that did not fall to units: the decodes, as far as is known.
    pub(crate) fn without_units(&self, step_ns: u64) -> u64 {
        if self.have_units_run() {
            step_ns.min(self.rows.step_time.decodes_ns())
        } else {
            step_ns
        }
    }

    /// Whether units are planned.
    pub(crate) fn has_units(&self) -> bool {
        self.encodings.units_planned() > 0 || self.blocks.units_planned() > 0
    }

    /// Finds out how far each sequence in prefill can be computed, and chooses what units are computed of. Returns whether the
    /// time that decodes leave goes to units in this step.
    pub(super) fn select_units(&mut self, decodes: usize) -> bool {
        self.encodings.clock.planned = None;
        self.blocks.clock.planned = None;
        if !self.encodings.has_encoder() {
            return false;
        }
        self.encodings.begin_plan();
        let (mut encodings, mut blocks) = (Claims::default(), Claims::default());
        for at in 0..self.table.order_len() {
            let key = self.table.key_at(at);
            let Some(sequence) = self.table.get_mut(key) else {
                continue;
            };
            if sequence.media.is_empty() || !sequence.is_prefilling() {
                continue;
            }
            let encoding = self.encodings.seek(sequence, &self.inbox.stats);
            let is_block = sequence.awaits_block();
            let (age, slot) = (sequence.age, sequence.slot);
            let fair_share = self.table.fair_share(slot);
            let Some(sequence) = self.table.get(key) else {
                continue;
            };
            let claim = |work| UnitClaim {
                key,
                age,
                work,
                priority: self.priority.row_priority(fair_share, sequence, self.clock),
            };
            if let Some(work @ UnitWork::Encoding { row, .. }) = encoding {
                encodings.add(claim(work), self.encodings.is_current(row));
            }
            if is_block {
                blocks.add(claim(UnitWork::Block), self.blocks.is_current(key, age));
            }
        }
        let may_begin = |claim: &UnitClaim| self.encodings.may_begin(claim.work);
        let encoding = encodings.current.or(encodings.first.filter(may_begin));
        let block = blocks.current.or(blocks.first);
        // Of equals the block: it is nearer to an answer, and its rows make room for the next encoding.
        let urgency =
            |claim: &UnitClaim| (claim.priority.without_age(), claim.work != UnitWork::Block);
        let claims = block.into_iter().chain(encoding);
        match claims.min_by_key(urgency) {
            Some(claim) if self.is_turn_of(&claim) => {
                self.plan_units(&claim, decodes);
                true
            }
            _ => false,
        }
    }

    /// Whether units go before the prompts that can be computed.
    fn is_turn_of(&mut self, claim: &UnitClaim) -> bool {
        let prefilling = self.table.live();
        let prompts = prefilling.filter(|(_, s)| s.is_prefilling() && s.rows_wanted() > 0);
        let priority = |(_, sequence): (usize, &Sequence)| {
            let fair_share = self.table.fair_share(sequence.slot);
            let priority = self.priority.row_priority(fair_share, sequence, self.clock);
            priority.without_age()
        };
        let of_units = claim.priority.without_age();
        let is_turn = match prompts.map(priority).min() {
            None => return true,
            Some(of_prompt) if of_prompt == of_units => !self.were_units,
            Some(of_prompt) => of_units < of_prompt,
        };
        self.were_units = is_turn;
        is_turn
    }

    fn plan_units(&mut self, claim: &UnitClaim, decodes: usize) {
        let left_ns = self.rows.step_time.left_ns(decodes);
        let clock = match claim.work {
            UnitWork::Block => &mut self.blocks.clock,
            UnitWork::Encoding { row, .. } => {
                let request = self.table.pair(claim.key);
                let progress = request.map(|(_, request)| Arc::clone(&request.progress));
                self.encodings.set_planned(row, progress);
                &mut self.encodings.clock
            }
        };
        let units = clock.take_units(left_ns, decodes);
        clock.planned = (units > 0).then_some(PlannedUnits {
            key: claim.key,
            age: claim.age,
            units,
            beside_decodes: decodes > 0,
        });
    }

    /// Charges the account of a sequence for a unit as for rows that take as long.
    pub(super) fn charge_time(&mut self, key: usize, unit_ns: u64) {
        let Some((_, request)) = self.table.pair(key) else {
            return;
        };
        let fair_share = request.fair_share;
        let rows = unit_ns.checked_div(self.rows.step_time.prefill_row_ns());
        let fair_shares = &mut self.priority.fair_shares;
        fair_shares.set_rows_given(fair_share, self.clock.now_ns());
        fair_shares.charge(fair_share, PREFILL_COST.saturating_mul(rows.unwrap_or(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn units_fit_the_time_that_decodes_leave() {
        let mut clock = UnitClock::default();
        assert_eq!(clock.take_units(Some(100 * MS), 3), 1, "not measured yet");
        clock.record(2, 80 * MS);
        assert_eq!(clock.take_units(None, 3), usize::MAX, "no target");
        assert_eq!(clock.take_units(Some(100 * MS), 0), 2, "no decodes");
        assert_eq!(clock.take_units(Some(10 * MS), 0), 1, "at least one");
        assert_eq!(clock.take_units(Some(100 * MS), 3), 2);
        // 15 ms of each step are saved up for a unit of 40 ms.
        let units: Vec<_> = (0..9).map(|_| clock.take_units(Some(15 * MS), 3)).collect();
        assert_eq!(units.iter().sum::<usize>(), 3, "{units:?}");
        assert!(units.iter().all(|&units| units <= 1));
    }
}
