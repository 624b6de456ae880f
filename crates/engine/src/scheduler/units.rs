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

/// Units of a block that are computed together at most, where no decode waits. They are of one layer, so they take a small part
/// of what a prompt of as many rows takes, which is one step.
const TOGETHER_MAX: usize = 8;

/// Units are planned for this step.
#[derive(Clone, Copy)]
pub(super) struct PlannedUnits {
    /// The sequence that they are for.
    pub(super) key: usize,
    pub(super) age: Age,
    /// Whether there are decodes in the step.
    beside_decodes: bool,
}

/// The learned time of units, and those of a step.
///
/// The model gives the cost of its next unit, and the time of a cost of 1 is learned: the units of one
/// encoding take from 3 to 15 ms.
#[derive(Default)]
pub(super) struct UnitClock {
    /// Time of a cost of 1; 0 = not measured yet.
    cost_ns: u64,
    /// Time that units may take; what a step does not use is left to the next. `None`: all units.
    left_ns: Option<u64>,
    pub(super) planned: Option<PlannedUnits>,
    /// Cost of the next unit as far as is known; 0 where an encoding or a block is to be begun.
    next_cost: u64,
    /// Cost of the units of this step.
    run: u64,
}

impl UnitClock {
    /// Whether the last step was longer because of units.
    fn has_run(&self) -> bool {
        self.run > 0
    }

    /// Learns from the step that has ended, of which `decodes_ns` fell to decodes. Returns the time of its units.
    pub(super) fn record_step(&mut self, step_ns: u64, decodes_ns: u64) -> Option<u64> {
        let cost = std::mem::take(&mut self.run);
        let planned = self.planned.filter(|_| cost > 0)?;
        let decodes_ns = if planned.beside_decodes {
            decodes_ns
        } else {
            0
        };
        let ns = step_ns.saturating_sub(decodes_ns);
        self.cost_ns = move_estimate(self.cost_ns, (ns / cost).max(1));
        Some(ns)
    }

    /// Begins a step with this much time left; `None`: as much as there is work. Returns whether a unit may fit.
    fn begin_step(&mut self, left_ns: Option<u64>, decodes: usize) -> bool {
        let next_ns = self.time_of(self.next_cost);
        self.left_ns = left_ns.map(|left_ns| {
            let saved = self.left_ns.filter(|_| decodes > 0).unwrap_or(0);
            saved.saturating_add(left_ns).min(left_ns.max(next_ns))
        });
        decodes == 0 || self.left_ns.is_none_or(|left_ns| next_ns <= left_ns)
    }

    /// Takes the time of the next unit. Returns whether it fits; without decodes the first one always does.
    pub(super) fn take(&mut self, cost: u64) -> bool {
        self.next_cost = cost;
        let (is_first, ns) = (self.run == 0, self.time_of(cost));
        let Some(planned) = self.planned else {
            return false;
        };
        if let Some(left_ns) = &mut self.left_ns {
            let fits = match self.cost_ns {
                0 => is_first,
                _ => ns <= *left_ns || is_first && !planned.beside_decodes,
            };
            if !fits {
                return false;
            }
            *left_ns = left_ns.saturating_sub(ns);
        }
        self.run = self.run.saturating_add(cost);
        true
    }

    /// Takes the time of units that may be computed together: of one next to decodes, else of [`TOGETHER_MAX`]. `cost`: of
    /// so many. Returns their number; 0: they do not fit.
    pub(super) fn take_together(&mut self, cost: impl Fn(usize) -> u64) -> usize {
        let beside_decodes = self.planned.is_some_and(|planned| planned.beside_decodes);
        let units = if beside_decodes { 1 } else { TOGETHER_MAX };
        let is_taken = self.take(cost(units));
        // A step with decodes saves up the time of one.
        self.next_cost = cost(1);
        if is_taken { units } else { 0 }
    }

    /// The encoding or the block has ended.
    pub(super) fn end_work(&mut self) {
        self.next_cost = 0;
    }

    /// The learned time of a unit.
    pub(super) fn time_of(&self, cost: u64) -> u64 {
        self.cost_ns.saturating_mul(cost)
    }

    /// The learned time of the unit that was taken last.
    pub(super) fn taken_ns(&self) -> u64 {
        self.time_of(self.next_cost)
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
        self.encodings.clock.planned.is_some() || self.blocks.clock.planned.is_some()
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
        if decodes > 0 && self.rows.step_time.is_measurement_due(decodes) {
            return;
        }
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
        let may_fit = clock.begin_step(left_ns, decodes);
        clock.planned = may_fit.then_some(PlannedUnits {
            key: claim.key,
            age: claim.age,
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

    /// A clock for which a cost of 1 takes 40 ms.
    fn measured() -> UnitClock {
        UnitClock {
            cost_ns: 40 * MS,
            ..UnitClock::default()
        }
    }

    /// Units of these costs, over and over, that a step has.
    fn step(clock: &mut UnitClock, left_ns: Option<u64>, decodes: usize, costs: &[u64]) -> usize {
        clock.run = 0;
        let planned = PlannedUnits {
            key: 0,
            age: Age(0, 0),
            beside_decodes: decodes > 0,
        };
        clock.planned = clock.begin_step(left_ns, decodes).then_some(planned);
        costs.iter().take_while(|&&cost| clock.take(cost)).count()
    }

    #[test]
    fn units_fit_the_time_that_decodes_leave() {
        let all = &[1; 20];
        let few = |left: u64, decodes| step(&mut measured(), Some(left * MS), decodes, all);
        assert_eq!(
            step(&mut UnitClock::default(), Some(100 * MS), 3, all),
            1,
            "not measured yet"
        );
        assert_eq!(step(&mut measured(), None, 3, all), 20, "no target");
        assert_eq!(
            (few(100, 0), few(10, 0)),
            (2, 1),
            "without decodes at least one"
        );
        assert_eq!(few(100, 3), 2);
        // 15 ms of each step are saved up for a unit of 40 ms.
        let mut clock = measured();
        let units: Vec<_> = (0..9)
            .map(|_| step(&mut clock, Some(15 * MS), 3, all))
            .collect();
        assert_eq!(units.iter().sum::<usize>(), 3, "{units:?}");
        assert!(units.iter().all(|&units| units <= 1));
    }

    #[test]
    fn units_of_other_costs_take_as_much_longer() {
        let mut clock = measured();
        let left = Some(100 * MS);
        assert_eq!(step(&mut clock, left, 3, &[1, 2]), 1, "not both");
        assert_eq!(step(&mut clock, left, 3, &[2, 1]), 1);
        assert_eq!(step(&mut clock, left, 3, &[1, 1, 1]), 2);
        // A unit of 200 ms waits until it is saved up.
        let units: Vec<_> = (0..6)
            .map(|_| step(&mut clock, Some(50 * MS), 3, &[5]))
            .collect();
        assert_eq!(units, [0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn units_are_computed_together_where_no_decode_waits() {
        let joined = |clock: &mut UnitClock, left_ns: Option<u64>, decodes| {
            step(clock, left_ns, decodes, &[]);
            clock.take_together(|units| units.min(6) as u64)
        };
        let left = |ms: u64| Some(ms * MS);
        let all = TOGETHER_MAX;
        assert_eq!(joined(&mut UnitClock::default(), left(100), 0), all);
        assert_eq!(joined(&mut measured(), left(500), 3), 1);
        assert_eq!(joined(&mut measured(), None, 3), 1, "no target");
        assert_eq!(joined(&mut measured(), left(10), 3), 0);
        for left in [None, left(500), left(10)] {
            assert_eq!(joined(&mut measured(), left, 0), all, "{left:?}");
        }
        // Only the first of a step without time for more.
        let mut clock = measured();
        assert_eq!(joined(&mut clock, left(239), 0), all);
        assert_eq!(clock.take_together(|units| units.min(6) as u64), 0);
        // A decode that comes waits for the time of one unit.
        assert_eq!(joined(&mut clock, left(40), 3), 1);
    }

    #[test]
    fn time_is_learned_by_cost() {
        let mut clock = UnitClock::default();
        assert_eq!(step(&mut clock, Some(100 * MS), 3, &[4, 4]), 1);
        assert_eq!(clock.record_step(50 * MS, 10 * MS), Some(40 * MS));
        assert_eq!((clock.time_of(1), clock.taken_ns()), (10 * MS, 40 * MS));
        assert_eq!(clock.record_step(50 * MS, 10 * MS), None, "no units");
    }
}
