//! Rules by which one of several engines gets a request.

use super::load::EngineLoad;
use super::prefix_chain::mix;
use super::tracked_engine::Prediction;
use super::{EQUAL_SHARE, PlacementPolicy};
use crate::names::InstanceId;

/// An engine that may get a request.
pub(super) struct Candidate<'a> {
    pub(super) load: &'a EngineLoad,
    pub(super) prediction: Prediction,
    /// Prompt tokens that the engine probably has to compute.
    pub(super) uncached: u64,
}

/// The choices of one gateway so far.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: u64,
    last: Option<InstanceId>,
}

impl Turns {
    /// One of the candidates; `family` names the prompt's first block. `None`: there are no candidates.
    pub(super) fn choose(
        &mut self,
        policy: PlacementPolicy,
        candidates: &[Candidate<'_>],
        family: u64,
    ) -> Option<InstanceId> {
        let chosen = match policy {
            PlacementPolicy::Predicted => soonest(candidates, family),
            PlacementPolicy::LeastLoaded => fewest_sequences(candidates, self.count),
            PlacementPolicy::RoundRobin => next_in_turn(candidates, self.last),
        }?;
        self.count += 1;
        self.last = Some(chosen);
        Some(chosen)
    }
}

/// The engine with the soonest first token. Of those that are about equal, the one that computes the least, then the one
/// with the fewest sequences.
fn soonest(candidates: &[Candidate<'_>], family: u64) -> Option<InstanceId> {
    let seconds = candidates.iter().map(|one| one.prediction.seconds);
    let soonest = seconds.min_by(f64::total_cmp)?;
    let about_equal = candidates.iter().filter(|one| {
        let step = one.load.step.as_secs_f64();
        one.prediction.seconds <= soonest * (1.0 + EQUAL_SHARE) + step
    });
    let chosen = about_equal.min_by_key(|one| {
        let sequences = one.prediction.sequences;
        (one.uncached, sequences, mix(family ^ one.load.id.0))
    });
    chosen.map(|one| one.load.id)
}

/// The engine with the fewest requests, own ones since the heartbeat included; equal ones in an order that changes.
fn fewest_sequences(candidates: &[Candidate<'_>], turn: u64) -> Option<InstanceId> {
    let order = |one: &&Candidate<'_>| (one.prediction.sequences, mix(turn ^ mix(one.load.id.0)));
    candidates.iter().min_by_key(order).map(|one| one.load.id)
}

/// The engine whose id follows that of the last choice.
fn next_in_turn(candidates: &[Candidate<'_>], last: Option<InstanceId>) -> Option<InstanceId> {
    let ids = candidates.iter().map(|one| one.load.id);
    let following = ids.clone().filter(|id| last.is_some_and(|last| *id > last));
    following.min().or_else(|| ids.min())
}
