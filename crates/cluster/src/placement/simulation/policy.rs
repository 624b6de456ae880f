//! How a gateway of the simulation places requests.

use super::super::{EngineLoad, Placement, PlacementConfig, PlacementPolicy, PlacementRequest};
use std::time::Instant;

/// All policies, in the order of the table.
pub(super) const POLICIES: [PlacementPolicy; 3] = [
    PlacementPolicy::RoundRobin,
    PlacementPolicy::LeastLoaded,
    PlacementPolicy::Predicted,
];

/// Name of a policy in the table.
pub(super) fn policy_name(policy: PlacementPolicy) -> &'static str {
    match policy {
        PlacementPolicy::RoundRobin => "round robin",
        PlacementPolicy::LeastLoaded => "least-loaded",
        PlacementPolicy::Predicted => "predicted first token",
    }
}

/// One gateway.
pub(super) struct Gateway {
    pub(super) placement: Placement,
}

impl Gateway {
    pub(super) fn new(policy: PlacementPolicy) -> Self {
        let config = PlacementConfig {
            policy,
            ..PlacementConfig::default()
        };
        Self {
            placement: Placement::new(config),
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
