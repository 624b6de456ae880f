//! Which requests are sent to an engine, and to which one.

use super::assignment::Place;
use super::core::{Action, Relay};
use super::model_slots::ModelSlot;
use crate::messages::{ContentIdentity, Run};
use crate::placement::{PlacementRequest, mix};
use std::time::Instant;

impl Relay {
    /// Sends a waiting request to an engine.
    pub(super) fn place(&mut self, handle: u64, now: Instant) {
        if self.may_place(handle, now) {
            self.submit(handle, now);
        }
    }

    /// Whether a request waits for an engine and may run now.
    fn may_place(&mut self, handle: u64, now: Instant) -> bool {
        let is_connected = self.connected_at.is_some();
        let Some(placed) = self.requests.get_mut(&handle) else {
            return false;
        };
        let may_run = placed.relayed.update_permits(now);
        let Place::Waiting { retry_at } = placed.place else {
            return false;
        };
        if may_run {
            placed.unplaced_since = placed.unplaced_since.or(Some(now));
        } else {
            // Nothing is to be computed: the request is paused, waits for a permit or for its readers.
            placed.unplaced_since = None;
            placed.relayed.show_parked(now);
        }
        is_connected && may_run && now >= retry_at
    }

    fn submit(&mut self, handle: u64, now: Instant) {
        let Some(placed) = self.requests.get_mut(&handle) else {
            return;
        };
        let ModelSlot { model, hash, .. } = &self.models.0[placed.model];
        let engines = self.engines.models.get(placed.model);
        let loads = engines.map_or(&[][..], |engines| &engines.loads);
        let salt = placed.relayed.salt().0;
        let salt = salt as u64 ^ (salt >> 64) as u64;
        // Pages depend on adapters, too.
        let salt = placed.relayed.adapters().iter().fold(salt, |salt, used| {
            let (adapter, scale) = used;
            mix(salt ^ (adapter as u64) << 32 ^ u64::from(scale.to_bits()))
        });
        let prompt = placed.relayed.prompt();
        let vector_len = placed.relayed.vector_len();
        let excluded = match (vector_len, engines) {
            (Some(len), Some(engines)) => {
                [&placed.excluded[..], &engines.without_vectors(len)].concat()
            }
            _ => placed.excluded.clone(),
        };
        let request = PlacementRequest {
            model: *hash,
            // An embedding takes nothing from a prefix cache, and leaves nothing there.
            salt: vector_len.map_or(salt, |_| salt ^ !handle),
            prompt,
            max_tokens: placed.relayed.tokens_max().saturating_sub(prompt.len()) as u64,
            excluded: &excluded,
        };
        let chosen = self.placement.choose(loads, &request, now);
        let index = loads.iter().position(|load| Some(load.id) == chosen);
        let Some((index, engines)) = index.zip(engines) else {
            // All engines rejected the request: they are asked again later.
            placed.excluded.clear();
            let retry_at = now + self.config.retry;
            placed.place = Place::Waiting { retry_at };
            return;
        };
        let load = &loads[index];
        self.placement.placed(handle, load, &request, now);
        let arithmetic = engines.arithmetic.get(index);
        let run = Run {
            gateway: self.gateway,
            model_key: model.key.clone(),
            identity: ContentIdentity {
                arithmetic: arithmetic.cloned().unwrap_or_default(),
                ..model.identity.clone()
            },
            ..placed.begin_attempt(load.id, handle, now)
        };
        self.counters.attempts += 1;
        self.actions.push(Action::Submit {
            engine: load.id,
            run: Box::new(run),
        });
    }
}
