//! How a gateway of the simulation places requests.

use super::super::{EngineLoad, Placement, PlacementConfig, PlacementRequest};
use std::collections::HashMap;
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    RoundRobin,
    /// Fewest requests: those of the heartbeat, and own ones placed since.
    LeastLoaded,
    Predicted,
}

impl Policy {
    pub(super) const ALL: [Self; 3] = [Self::RoundRobin, Self::LeastLoaded, Self::Predicted];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round robin",
            Self::LeastLoaded => "least-loaded",
            Self::Predicted => "predicted first token",
        }
    }
}

/// One gateway.
pub(super) struct Gateway {
    policy: Policy,
    turn: usize,
    /// By engine: own placements, and the heartbeat that they follow.
    since: HashMap<u64, (Instant, u32)>,
    pub(super) placement: Placement,
}

impl Gateway {
    pub(super) fn new(policy: Policy, number: usize) -> Self {
        Self {
            policy,
            turn: number,
            since: HashMap::new(),
            placement: Placement::new(PlacementConfig::default()),
        }
    }

    /// Index of the engine for this request.
    pub(super) fn place(
        &mut self,
        id: u64,
        engines: &[EngineLoad],
        prompt: &[u32],
        now: Instant,
    ) -> usize {
        match self.policy {
            Policy::RoundRobin => {
                self.turn += 1;
                self.turn % engines.len()
            }
            Policy::LeastLoaded => self.least_loaded(engines),
            Policy::Predicted => {
                let request = PlacementRequest {
                    model: 0,
                    salt: 0,
                    prompt,
                    max_tokens: 300,
                    excluded: &[],
                };
                let chosen = self.placement.choose(engines, &request, now);
                let at = engines.iter().position(|load| Some(load.id) == chosen);
                let at = at.expect("an engine of the list");
                self.placement.placed(id, &engines[at], &request, now);
                at
            }
        }
    }

    fn least_loaded(&mut self, engines: &[EngineLoad]) -> usize {
        let count = |load: &EngineLoad| {
            let own = self
                .since
                .get(&load.id.0)
                .filter(|(at, _)| *at == load.heard);
            load.running + load.queued + own.map_or(0, |(_, n)| *n)
        };
        let at = (0..engines.len()).min_by_key(|&i| count(&engines[i]));
        let at = at.expect("there are engines");
        let load = &engines[at];
        let own = self.since.entry(load.id.0).or_insert((load.heard, 0));
        if own.0 != load.heard {
            *own = (load.heard, 0);
        }
        own.1 += 1;
        at
    }
}
