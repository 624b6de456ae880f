//! Published batches that show whether tokens of a request were lost before them.
//!
//! Injected tokens of a control update are in the logs of all open choices or of none: the next attempt gets an update
//! that is not in effect once more, and injects its tokens into each open choice.

use super::arrivals::RunCheck;
use super::core::Relay;
use crate::messages::TokenBatch;
use std::collections::BTreeSet;

impl Relay {
    /// Requests with an update that is not in effect here and whose tokens the batch does not have for each open choice.
    /// These tokens are read instead.
    pub(super) fn without_all_of_an_update(&mut self, batch: &TokenBatch) -> BTreeSet<u64> {
        let engine = batch.engine();
        let mut lacking = BTreeSet::new();
        let mut continued = None;
        for progress in batch.progress() {
            let handle = progress.handle;
            let placed = self.current(engine, handle, progress.attempt);
            if placed.is_none_or(|placed| placed.updates_applied >= progress.updates_applied) {
                continue;
            }
            let continued = continued.get_or_insert_with(|| self.continued_choices(batch));
            if !self.are_all_open_in(handle, continued) {
                lacking.insert(handle);
            }
        }
        for handle in &lacking {
            if let Some(placed) = self.requests.get_mut(handle) {
                placed.has_gap = true;
            }
        }
        lacking
    }

    /// Choices of requests with tokens in the batch that continue their logs.
    fn continued_choices(&self, batch: &TokenBatch) -> BTreeSet<(u64, u32)> {
        let continues = batch.runs().filter(|run| {
            let placed = self.requests.get(&run.key.handle);
            let ids = placed.and_then(|placed| placed.relayed.log_ids(run.key.choice as usize));
            ids.is_some_and(|ids| matches!(RunCheck::of(ids, run), RunCheck::Continues(_)))
        });
        continues
            .map(|run| (run.key.handle, run.key.choice))
            .collect()
    }

    /// Whether each open choice of a request is among these. A choice without new tokens, whose reader rests, does not show
    /// whether earlier ones were lost.
    pub(super) fn are_all_open_in(&self, handle: u64, choices: &BTreeSet<(u64, u32)>) -> bool {
        let Some(placed) = self.requests.get(&handle) else {
            return false;
        };
        let mut all = 0..placed.relayed.choices();
        all.all(|choice| {
            placed.have(choice).is_none() || choices.contains(&(handle, choice as u32))
        })
    }
}
