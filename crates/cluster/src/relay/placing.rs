//! Which requests are sent to an engine, and to which one of those that serve the model.

use super::assignment::{Assignment, Place};
use super::core::{Action, Relay};
use super::driver::{ModelSlot, RelayedModel};
use crate::messages::{ContentIdentity, Heartbeat, ReportedLoad, Role, Run};
use crate::names::InstanceId;
use crate::placement::{EngineLoad, PlacementRequest, mix};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        let files = placed.relayed.files().cloned();
        let prompt = placed.relayed.prompt();
        let numbered = files.as_ref().map(|files| files.numbered(prompt));
        let prompt = numbered.as_deref().unwrap_or(prompt);
        let vector_len = placed.relayed.vector_len();
        let mut excluded = placed.excluded.clone();
        if let Some(engines) = engines {
            excluded.extend(unfit_engines(placed, model, engines));
        }
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
            files,
        });
    }
}

/// Engines that cannot compute a request: they give no vectors of its length, or see its images otherwise.
pub(super) fn unfit_engines(
    placed: &Assignment,
    model: &RelayedModel,
    engines: &ModelEngines,
) -> Vec<InstanceId> {
    match (placed.relayed.vector_len(), placed.relayed.files()) {
        (Some(len), _) => engines.without_vectors(len),
        (None, Some(_)) => engines.without_tower(&model.tower),
        (None, None) => Vec::new(),
    }
}

/// Step time of an engine that has not reported one.
const STEP: Duration = Duration::from_millis(10);

/// Another instance of the cluster that is not gone.
#[derive(Clone, Debug)]
pub struct KnownInstance {
    /// The last heartbeat.
    pub heartbeat: Arc<Heartbeat>,
    /// Arrival of the last heartbeat.
    pub heard: Instant,
    /// Whether the instance is neither silent nor leaving.
    pub accepts: bool,
}

/// Engines of one model.
#[derive(Clone, Debug, Default)]
pub struct ModelEngines {
    /// Engines that accept requests.
    pub loads: Vec<EngineLoad>,
    /// By engine: the arithmetic of the model's identity, which a gateway does not have.
    pub arithmetic: Vec<String>,
    /// By engine: entries of the vectors that it gives; 0: no embeddings.
    pub hidden_dims: Vec<u64>,
    /// By engine: fingerprint of the tower that computes images; empty: none.
    pub towers: Vec<String>,
}

/// The engines as they are known now.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    /// By model of the relay.
    pub models: Vec<ModelEngines>,
    /// All engines that are not gone, those that accept no requests included.
    pub alive: BTreeSet<InstanceId>,
}

impl Engines {
    /// The engines among the instances, for these models.
    pub fn new<'a>(
        models: impl Iterator<Item = &'a RelayedModel>,
        instances: &[KnownInstance],
    ) -> Self {
        let engines = instances
            .iter()
            .filter(|i| i.heartbeat.role != Role::Gateway);
        Self {
            models: models
                .map(|model| ModelEngines::new(model, instances))
                .collect(),
            alive: engines.map(|instance| instance.heartbeat.id).collect(),
        }
    }
}

impl ModelEngines {
    /// Engines that a request for an embedding with this many entries excludes.
    pub(super) fn without_vectors(&self, len: usize) -> Vec<InstanceId> {
        let dims = self.hidden_dims.iter().map(|dim| Some(*dim));
        let dims = dims.chain(std::iter::repeat(None));
        let unfit = |dim: &Option<u64>| *dim != Some(len as u64);
        let engines = self.loads.iter().zip(dims);
        engines
            .filter_map(|(load, dim)| unfit(&dim).then_some(load.id))
            .collect()
    }

    /// Engines that a request with images excludes: only equal towers compute equal rows.
    pub(super) fn without_tower(&self, tower: &str) -> Vec<InstanceId> {
        let towers = self
            .towers
            .iter()
            .map(|own| own == tower && !own.is_empty());
        let engines = self
            .loads
            .iter()
            .zip(towers.chain(std::iter::repeat(false)));
        engines
            .filter_map(|(load, sees)| (!sees).then_some(load.id))
            .collect()
    }

    fn new(model: &RelayedModel, instances: &[KnownInstance]) -> Self {
        let mut engines = Self::default();
        for instance in instances.iter().filter(|instance| instance.accepts) {
            let heartbeat = &instance.heartbeat;
            let served = heartbeat.models.iter().find(|served| {
                served.key == model.key
                    && served.identity.has_content_of(&model.identity)
                    && served.context_max >= model.context_max as u64
            });
            if let Some((served, load)) = served.and_then(|served| Some((served, served.load?))) {
                engines.loads.push(engine_load(instance, &load));
                engines.arithmetic.push(served.identity.arithmetic.clone());
                engines.hidden_dims.push(served.hidden_dim);
                engines.towers.push(served.tower.clone());
            }
        }
        engines
    }
}

fn engine_load(instance: &KnownInstance, load: &ReportedLoad) -> EngineLoad {
    let free = load.pages_free.saturating_add(load.pages_cached);
    EngineLoad {
        id: instance.heartbeat.id,
        heard: instance.heard,
        cache_epoch: load.cache_epoch,
        cache_tokens: load.pages_total.saturating_mul(load.page_tokens),
        free_tokens: free.saturating_mul(load.page_tokens),
        slots: load.slots,
        queued: load.queued,
        running: load.running,
        prefill_pending: load.prefill_pending,
        prefill_tokens_per_s: load.prefill_tokens_per_s,
        step: match load.step_us {
            0 => STEP,
            step_us => Duration::from_micros(step_us),
        },
    }
}

#[cfg(test)]
mod tests {
    //! Promise (Cluster): engines with other content, or a shorter context, get no requests.

    use super::*;
    use crate::messages::{ContentIdentity, ServedModel};
    use engine::EngineConfig;
    use engine::remote::remote_handle;
    use model::Dims;

    fn identity(weights: &str, arithmetic: &str) -> ContentIdentity {
        ContentIdentity {
            weights: weights.into(),
            arithmetic: arithmetic.into(),
            ..ContentIdentity::default()
        }
    }

    fn instance(id: u64, role: Role, identity: ContentIdentity, now: Instant) -> KnownInstance {
        let model = ServedModel {
            key: "model".into(),
            identity,
            context_max: 64,
            hidden_dim: 8,
            tower: if id == 1 {
                "eyes".into()
            } else {
                String::new()
            },
            load: (role != Role::Gateway).then(|| ReportedLoad {
                pages_total: 10,
                pages_free: 3,
                pages_cached: 4,
                page_tokens: 16,
                ..ReportedLoad::default()
            }),
        };
        let mut heartbeat = Heartbeat::new(InstanceId(id), role);
        heartbeat.models.push(model);
        KnownInstance {
            heartbeat: Arc::new(heartbeat),
            heard: now,
            accepts: true,
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a start of virtual time")]
    fn engines_with_the_models_content_are_placed_on() {
        let now = Instant::now();
        let dims = Dims {
            vocab: 64,
            context_max: 64,
            page_tokens: 16,
            pages: 8,
            rows_max: 8,
            logit_rows_max: 8,
        };
        let (_handle, inbox) = remote_handle(dims, EngineConfig::default(), now).unwrap();
        let model = RelayedModel {
            key: "model".into(),
            identity: identity("w", ""),
            context_max: 64,
            tower: "eyes".into(),
            inbox,
        };
        let mut instances = [
            instance(1, Role::Engine, identity("w", "f32"), now),
            instance(2, Role::All, identity("w", "bf16"), now),
            instance(3, Role::Engine, identity("other", "f32"), now),
            instance(4, Role::Gateway, identity("w", ""), now),
            instance(5, Role::Engine, identity("w", "f32"), now),
            instance(6, Role::Engine, identity("w", "f32"), now),
        ];
        instances[4].accepts = false;
        let mut short = (*instances[5].heartbeat).clone();
        short.models[0].context_max = 63;
        instances[5].heartbeat = Arc::new(short);
        let engines = Engines::new([&model].into_iter(), &instances);
        let ids: Vec<u64> = engines.models[0]
            .loads
            .iter()
            .map(|load| load.id.0)
            .collect();
        assert_eq!(ids, [1, 2]);
        assert_eq!(engines.models[0].arithmetic, ["f32", "bf16"]);
        let without = |len| engines.models[0].without_vectors(len).len();
        assert_eq!((without(8), without(9)), (0, 2));
        let blind = |tower| engines.models[0].without_tower(tower);
        assert_eq!(blind("eyes"), [InstanceId(2)]);
        assert_eq!((blind("others").len(), blind("").len()), (2, 2));
        assert_eq!(engines.alive, [1, 2, 3, 5, 6].map(InstanceId).into());
        let load = &engines.models[0].loads[0];
        assert_eq!(
            (load.cache_tokens, load.free_tokens, load.step),
            (160, 112, STEP)
        );
    }
}
