//! Sequences with results in flight, of a model that runs ahead; see [`crate::step_execution`].

use super::Scheduler;
use crate::sampler::{Sampler, is_describable};
use crate::sequence::{InFlight, SequenceState};
use crate::terms::Age;
use model::Draws;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::FailCode;

impl Scheduler {
    /// Whether the sequence of this age is under this key, and has not ended.
    pub(crate) fn is_alive(&self, key: usize, age: Age) -> bool {
        self.table.get(key).is_some_and(|s| s.age == age)
    }

    /// Whether the model draws the next token of a sequence with rows in the batch.
    pub(crate) fn is_drawn_by_model(&self, key: usize) -> bool {
        self.table.pair(key).is_some_and(|(sequence, request)| {
            sequence.pool.is_none()
                && sequence.drafts.rows().is_empty()
                && is_describable(&request.sampling)
        })
    }

    /// Adds the sequences that sample from the row of a sequence: itself, and the choices that wait for its prompt.
    pub(crate) fn add_choices(&self, key: usize, choices: &mut Vec<(usize, Age)>) {
        let Some(sequence) = self.table.get(key) else {
            return;
        };
        choices.push((key, sequence.age));
        if sequence.generated() > 0 {
            return;
        }
        let slot = sequence.slot;
        let forking = self.table.in_state(SequenceState::Forking);
        let forking = forking.filter(|(_, s)| s.slot == slot);
        choices.extend(forking.map(|(key, s)| (key, s.age)));
    }

    /// Adds a draw from a row for each of these sequences of one request. Returns false if the request has failed instead.
    pub(crate) fn describe_draws(
        &mut self,
        choices: &[(usize, Age)],
        row: usize,
        sampler: &mut Sampler,
        draws: &mut Draws,
    ) -> bool {
        for &(key, _) in choices {
            let Some((sequence, request)) = self.table.pair_mut(key) else {
                return false;
            };
            let mut context = sequence.sample_context(request);
            let describe = AssertUnwindSafe(|| sampler.describe(row, &mut context, draws));
            if catch_unwind(describe).is_err() {
                self.fail(key, FailCode::Panic);
                return false;
            }
        }
        true
    }

    /// Notes that results of a sequence are on their way.
    pub(crate) fn set_in_flight(&mut self, key: usize, in_flight: InFlight) {
        let may_draft = self.speculator.is_on();
        if let Some(sequence) = self.table.get_mut(key) {
            let may_follow = in_flight.may_follow && !may_draft && !sequence.awaits_forced;
            sequence.in_flight = Some(InFlight {
                may_follow,
                ..in_flight
            });
        }
    }

    /// Takes the mark of this batch from the sequence that holds the rows' pages. Returns the key; `None`: the sequence has
    /// ended, or has lost its pages.
    pub(crate) fn take_in_flight(&mut self, choices: &[(usize, Age)], batch: u64) -> Option<usize> {
        let holder = choices.iter().find(|&&(key, age)| {
            let sequence = self.table.get(key).filter(|s| s.age == age);
            let in_flight = sequence.and_then(|s| s.in_flight);
            in_flight.is_some_and(|in_flight| in_flight.batch == batch)
        });
        let &(key, _) = holder?;
        self.table.get_mut(key)?.in_flight = None;
        Some(key)
    }

    /// Whether the next batch is to be started before the results in flight have landed: some sequence can get rows
    /// until then. Prompts alone are no reason while other sequences wait for their results.
    pub(crate) fn stays_ahead(&self) -> bool {
        let (mut waits, mut prefills) = (false, false);
        for (_, sequence) in self.table.live() {
            prefills |= sequence.is_prefilling();
            let request = self.table.request(sequence.slot);
            if sequence.in_flight.is_some() {
                if request.is_some_and(|request| sequence.may_get_rows(request)) {
                    return true;
                }
                waits = true;
            }
        }
        prefills && !waits
    }
}
